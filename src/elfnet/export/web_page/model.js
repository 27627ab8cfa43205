// The network in the browser: one ONNX file that stops early, run by ONNX Runtime Web on one thread.

import * as ort from "./onnxruntime/ort.wasm.bundle.min.mjs";
import { verifiedMetadata } from "./metadata.js";

const MAX_RUNTIME_MESSAGE = 200;

ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmPaths = { wasm: new URL("onnxruntime/ort-wasm-simd-threaded.wasm", import.meta.url).href };
ort.env.logLevel = "error";

/** Fetch a file, verify it, and return the `Model` in it. An error has a message for people. */
export async function openModel(url = "optimised.onnx") {
  startRuntime();
  const bytes = await fetched(url);
  const metadata = await verifiedMetadata(bytes, url);
  try {
    const model = new Model(metadata, await ort.InferenceSession.create(bytes, { executionProviders: ["wasm"], graphOptimizationLevel: "disabled" }));
    await model.classify(new Uint8Array(model.imageSize), model.inputsOf(model.defaultPoint));
    return model;
  } catch (error) {
    throw new Error(`${url} does not run in this browser (${String(error.message ?? error).slice(0, MAX_RUNTIME_MESSAGE)}); export the folder again`);
  }
}

/** Load and compile the runtime while the file is loaded and verified. It starts with its first session, even one without a graph. */
function startRuntime() {
  ort.InferenceSession.create(new Uint8Array(0), { executionProviders: ["wasm"] }).catch(() => null);
}

async function fetched(url) {
  const response = await fetch(url).catch(() => null);
  if (!response?.ok) throw new Error(`${url} cannot be loaded (${response ? `status ${response.status}` : "no connection"}); copy the whole folder to the server`);
  return new Uint8Array(await response.arrayBuffer());
}

export class Model {
  constructor(metadata, session) {
    this.session = session;
    this.classNames = metadata.class_names;
    this.preprocessing = metadata.preprocessing;
    this.defaultPoint = metadata.default_point;
    this.inputs = metadata.operating_points;
    this.family = metadata.variants[metadata.precision].family;
    this.exits = this.family.cost.length;
    const { mode, height, width } = this.preprocessing;
    this.shape = [height, width, mode === "RGB" ? 3 : 1];
    this.imageSize = this.shape.reduce((product, side) => product * side);
  }

  /** The inputs of an operating point, by name. */
  inputsOf(point) {
    if (!(point in this.inputs)) throw new Error(`there is no operating point '${point}'; choose from: ${Object.keys(this.inputs).join(", ")}`);
    return this.inputs[point];
  }

  /**
   * Classify images.
   * @param pixels Uint8Array: one image after the other, each height x width x channels.
   * @param inputs By name, one row for all images, or one row per image, in one flat array.
   * @returns One `{classIndex, confidence, exit, cost, probabilities}` per image; exits count from 1, and `classIndex` is null where the model abstains.
   */
  async classify(pixels, inputs) {
    const images = this.requirePixels(pixels);
    const rows = Object.entries(this.inputsOf(this.defaultPoint)).map(([name, own]) => [name, rowsOf(name, inputs[name], own.length, images)]);
    const answers = [];
    for (let i = 0; i < images; i++) { // the graph is for one image
      const feeds = { images: new ort.Tensor("uint8", pixels.slice(i * this.imageSize, (i + 1) * this.imageSize), [1, ...this.shape]) };
      for (const [name, values] of rows) feeds[name] = new ort.Tensor("float32", values[i % values.length], [1, values[0].length]);
      const found = await this.session.run(feeds);
      const index = Number(found.class.data[0]);
      answers.push({
        classIndex: index < 0 ? null : index,
        confidence: found.confidence.data[0],
        exit: Number(found.exit.data[0]),
        cost: found.cost.data[0],
        probabilities: found.probabilities.data.slice(),
      });
    }
    return answers;
  }

  /** The answer at every exit, one call each: the others are closed with a threshold of 1, the exit's own is 0. */
  async atEveryExit(pixels, inputs) {
    const answers = [];
    for (let k = 0; k < this.exits; k++) {
      const thresholds = Array.from({ length: this.exits - 1 }, (_, j) => (j === k ? 0 : 1));
      const [answer] = await this.classify(pixels, { ...inputs, thresholds });
      answers.push(answer);
    }
    return answers;
  }

  requirePixels(pixels) {
    if (!(pixels instanceof Uint8Array)) throw new Error("images must be a Uint8Array; convert them");
    if (pixels.length === 0 || pixels.length % this.imageSize) {
      throw new Error(`the images have ${pixels.length} bytes; give ${this.imageSize} (${this.shape.join(" x ")}) for each`);
    }
    return pixels.length / this.imageSize;
  }
}

/** The rows of an input: one for all images, or one per image. */
function rowsOf(name, given, width, images) {
  const values = Float32Array.from(given ?? []);
  const rows = values.length / width;
  if (rows !== 1 && rows !== images) throw new Error(`${name} has ${values.length} numbers; give ${width}, or ${width} for each of ${images} images`);
  if (name === "thresholds" && !values.every((value) => value >= 0 && value <= 1)) {
    throw new Error("a threshold is not between 0 and 1; give probabilities, 1 for nobody leaves");
  }
  return Array.from({ length: rows }, (_, i) => values.slice(i * width, (i + 1) * width));
}
