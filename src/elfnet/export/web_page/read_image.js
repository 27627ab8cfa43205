// From a file, or a frame of the camera, to pixels.

const MAX_PIXELS = 16e6; // a phone may have no memory for more; larger photos are drawn smaller

/** Return the pixels of an image file, upright and on white where it is transparent. */
export async function readFile(file) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file, { colorSpaceConversion: "none", imageOrientation: "from-image" });
  } catch {
    throw new Error(`${file.name || "this"} is not an image that this browser can read; give a PNG, JPEG or WebP file`);
  }
  const scale = Math.min(1, Math.sqrt(MAX_PIXELS / (bitmap.width * bitmap.height)));
  const pixels = drawn(bitmap, Math.max(1, Math.round(bitmap.width * scale)), Math.max(1, Math.round(bitmap.height * scale)));
  bitmap.close();
  return pixels;
}

/** Return the pixels of the present frame of a video, or null before the first one. */
export function readFrame(video) {
  return video.videoWidth ? drawn(video, video.videoWidth, video.videoHeight) : null;
}

function drawn(source, width, height) {
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true, alpha: false });
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  context.drawImage(source, 0, 0, width, height);
  return context.getImageData(0, 0, width, height);
}
