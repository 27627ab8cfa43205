// node classify.mjs MODEL.onnx PIXELS [OPERATING_POINT]
// Classifies images with one ONNX file that stops early. One JSON line per image.
import { readFileSync } from "node:fs";
import { InferenceSession, Tensor } from "onnxruntime-node";
import { readMetadata } from "./metadata.mjs";

const [file, pixels, wanted] = process.argv.slice(2);
const model = readFileSync(file);
const metadata = readMetadata(model);
if (!("elfnet:operating_points" in metadata)) throw new Error(`${file} has no operating points; export the run again`);
const classNames = JSON.parse(metadata["elfnet:class_names"]);
const points = JSON.parse(metadata["elfnet:operating_points"]);
const point = points[wanted ?? metadata["elfnet:default_point"]];
if (!point) throw new Error(`unknown operating point '${wanted}'; choose from: ${Object.keys(points).join(", ")}`);

const { mode, height, width } = JSON.parse(metadata["elfnet:preprocessing"]);
const shape = [height, width, mode === "RGB" ? 3 : 1];
const size = shape.reduce((a, b) => a * b);
const bytes = new Uint8Array(readFileSync(pixels));
if (bytes.length === 0 || bytes.length % size) {
  throw new Error(`${pixels} has ${bytes.length} bytes; give ${size} for every ${mode} image of ${height} x ${width}`);
}
const session = await InferenceSession.create(model);
const inputs = { images: new Tensor("uint8", bytes, [bytes.length / size, ...shape]) };
for (const [name, values] of Object.entries(point)) inputs[name] = new Tensor("float32", values, [1, values.length]);
const answers = await session.run(inputs);
for (let i = 0; i < bytes.length / size; i++) {
  const [index, exit] = [Number(answers.class.data[i]), Number(answers.exit.data[i])];
  const [confidence, cost] = [answers.confidence.data[i], answers.cost.data[i]];
  console.log(JSON.stringify({ class: classNames[index] ?? null, confidence, exit, cost }));
}
