// Images as the network reads them, the examples of a batch that stay, and their confidence. Batches are row after row: (N, ...).
import { readFileSync } from "node:fs";
import { Tensor } from "onnxruntime-node";

// Raw bytes, height x width x channels for every image, as float32 of shape (N, channels, height, width).
export function readImages(file, { mode, height, width, mean, std }) {
  const bytes = readFileSync(file);
  const [channels, area] = [mode === "RGB" ? 3 : 1, height * width];
  const count = bytes.length / (channels * area);
  if (count < 1 || !Number.isInteger(count)) {
    throw new Error(`${file} has ${bytes.length} bytes; give ${channels * area} for every ${mode} image of ${height} x ${width}`);
  }
  const [round, data] = [Math.fround, new Float32Array(bytes.length)]; // every step in float32, as in training
  for (let i = 0; i < bytes.length; i++) {
    const [channel, pixel, image] = [i % channels, Math.floor(i / channels) % area, Math.floor(i / (channels * area))];
    const scaled = round(round(round(bytes[i] / 255) - round(mean[channel])) / round(std[channel]));
    data[(image * channels + channel) * area + pixel] = scaled;
  }
  return new Tensor("float32", data, [count, channels, height, width]);
}

export function keep({ data, dims: [count, ...rest] }, stay) {
  const size = data.length / count;
  const kept = new Float32Array(stay.length * size);
  stay.forEach((row, to) => kept.set(data.subarray(row * size, (row + 1) * size), to * size));
  return new Tensor("float32", kept, [stay.length, ...rest]);
}

// What a policy compares with its threshold, from logits less their largest: the largest probability, or by entropy.
export function confidenceOf(logits, measure) {
  const powers = logits.map(Math.exp);
  const total = powers.reduce((sum, power) => sum + power, 0);
  if (measure !== "entropy") return 1 / total;
  const entropy = powers.reduce((sum, power) => sum - (power && (power / total) * Math.log(power / total)), 0);
  return 1 - entropy / Math.log(powers.length);
}
