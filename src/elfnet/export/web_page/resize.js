// Crops and resizes an image as elfnet does in Python: the same part of it and the same filter as Pillow, in the same
// integers. A canvas would use a filter of its own, and other pixels give other answers.

const BITS = 2 ** 22; // Pillow's filter weights are integers with 22 bits behind the point
const GAP = 3; // a crop that is more than this many times larger than needed is first averaged in blocks

/** Return (height * width * channels) bytes of the network's input from `image`, an ImageData without transparency. */
export function networkPixels(image, { mode, height, width, crop_share: share, resize }) {
  let crop = { width: image.width, height: image.height };
  if (resize !== "squash-bilinear") {
    crop = { width: Math.min(image.width, (image.height * width) / height), height: Math.min(image.height, (image.width * height) / width) };
  }
  // An image of the network's size is used as it is.
  if (image.width === width && image.height === height && share === 1) return inMode(planes(image), mode);
  crop = { width: crop.width * share, height: crop.height * share };
  const left = (image.width - crop.width) / 2;
  const top = (image.height - crop.height) / 2;
  const box = { left, top, right: left + crop.width, bottom: top + crop.height };
  return inMode(resized(planes(image), box, width, height), mode);
}

/** RGB without the fourth byte of a canvas. */
function planes({ width, height, data }) {
  const pixels = new Uint8Array(width * height * 3);
  for (let from = 0, to = 0; from < data.length; from += 4, to += 3) {
    pixels[to] = data[from];
    pixels[to + 1] = data[from + 1];
    pixels[to + 2] = data[from + 2];
  }
  return { width, height, pixels };
}

function inMode({ pixels }, mode) {
  if (mode === "RGB") return pixels;
  const grey = new Uint8Array(pixels.length / 3);
  for (let i = 0; i < grey.length; i++) {
    grey[i] = (pixels[3 * i] * 19595 + pixels[3 * i + 1] * 38470 + pixels[3 * i + 2] * 7471 + 32768) >> 16;
  }
  return grey;
}

function resized(image, box, width, height) {
  const across = (box.right - box.left) / width;
  const down = (box.bottom - box.top) / height;
  const blockX = Math.floor(across / GAP) || 1;
  const blockY = Math.floor(down / GAP) || 1;
  if (blockX > 1 || blockY > 1) {
    const x = Math.max(0, Math.trunc(box.left - across / 2));
    const y = Math.max(0, Math.trunc(box.top - down / 2));
    const right = Math.min(image.width, Math.ceil(box.right + across / 2));
    const bottom = Math.min(image.height, Math.ceil(box.bottom + down / 2));
    image = averaged(image, { x, y, right, bottom }, blockX, blockY);
    box = {
      left: (box.left - x) / blockX, right: (box.right - x) / blockX,
      top: (box.top - y) / blockY, bottom: (box.bottom - y) / blockY,
    };
  }
  const columns = filter(image.width, box.left, box.right, width);
  const rows = filter(image.height, box.top, box.bottom, height);
  return vertically(horizontally(image, columns), rows);
}

/** The mean of each block; at the right and lower edge a block may be smaller. */
function averaged(image, { x, y, right, bottom }, blockX, blockY) {
  const width = Math.ceil((right - x) / blockX);
  const height = Math.ceil((bottom - y) / blockY);
  const pixels = new Uint8Array(width * height * 3);
  for (let row = 0; row < height; row++) {
    const rowEnd = Math.min(bottom, y + (row + 1) * blockY);
    for (let column = 0; column < width; column++) {
      const columnEnd = Math.min(right, x + (column + 1) * blockX);
      const sums = [0, 0, 0];
      for (let j = y + row * blockY; j < rowEnd; j++) {
        for (let at = 3 * (j * image.width + x + column * blockX); at < 3 * (j * image.width + columnEnd); at += 3) {
          sums[0] += image.pixels[at];
          sums[1] += image.pixels[at + 1];
          sums[2] += image.pixels[at + 2];
        }
      }
      const count = (rowEnd - y - row * blockY) * (columnEnd - x - column * blockX);
      const to = 3 * (row * width + column);
      // Pillow multiplies by a rounded reciprocal instead of dividing.
      const factor = Math.floor(2 ** 24 / count);
      for (let channel = 0; channel < 3; channel++) pixels[to + channel] = Math.floor(((sums[channel] + (count >> 1)) * factor) / 2 ** 24);
    }
  }
  return { width, height, pixels };
}

/** For each of `size` output positions, the first input position and the integer weights of a triangle filter. */
function filter(input, low, high, size) {
  const scale = (high - low) / size;
  const reach = Math.max(scale, 1);
  return Array.from({ length: size }, (_, i) => {
    const centre = low + (i + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - reach + 0.5));
    const last = Math.min(input, Math.trunc(centre + reach + 0.5));
    const weights = [];
    for (let at = first; at < last; at++) weights.push(Math.max(0, 1 - Math.abs((at - centre + 0.5) / reach)));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    return { first, weights: weights.map((weight) => Math.trunc(0.5 + (weight / total) * BITS)) };
  });
}

function horizontally({ width, height, pixels }, columns) {
  const made = new Uint8Array(columns.length * height * 3);
  for (let row = 0; row < height; row++) {
    columns.forEach(({ first, weights }, column) => {
      weighted(pixels, 3 * (row * width + first), 3, weights, made, 3 * (row * columns.length + column));
    });
  }
  return { width: columns.length, height, pixels: made };
}

function vertically({ width, pixels }, rows) {
  const made = new Uint8Array(width * rows.length * 3);
  rows.forEach(({ first, weights }, row) => {
    for (let column = 0; column < width; column++) {
      weighted(pixels, 3 * (first * width + column), 3 * width, weights, made, 3 * (row * width + column));
    }
  });
  return { width, height: rows.length, pixels: made };
}

function weighted(pixels, from, step, weights, made, to) {
  for (let channel = 0; channel < 3; channel++) {
    let sum = BITS / 2;
    for (let k = 0, at = from + channel; k < weights.length; k++, at += step) sum += pixels[at] * weights[k];
    made[to + channel] = Math.min(255, Math.floor(sum / BITS));
  }
}
