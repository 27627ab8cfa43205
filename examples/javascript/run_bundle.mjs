// node run_bundle.mjs BUNDLE PIXELS [OPERATING_POINT]
// Classifies images with the stages of a bundle: run a stage, decide, go on with those who stay. One JSON line an image.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { InferenceSession } from "onnxruntime-node";
import { stageAlone } from "./stage_alone.mjs";
import { confidenceOf, keep, readImages } from "./tensors.mjs";

const [bundle, pixels, wanted] = process.argv.slice(2);
const manifest = JSON.parse(readFileSync(join(bundle, "manifest.json"), "utf8"));
const { graphs, family } = manifest.variants.float32;
const names = family.points.map((point) => point.name);
const { policy } = family.points[wanted ? names.indexOf(wanted) : 0] ?? {};
if (!policy) throw new Error(`unknown operating point '${wanted}'; choose from: ${names.join(", ")}`);

let features = [readImages(pixels, manifest.preprocessing)];
let here = Array.from({ length: features[0].dims[0] }, (_, i) => ({ image: i, evidence: manifest.class_names.map(() => 0) }));
let notRun = 0; // cost of the heads that were left out
const answers = [];
for (let k = 0; here.length > 0; k++) {
  const last = k === graphs.length - 1;
  const runsHead = last || policy.combine || policy.thresholds[k] < 1; // nobody can exceed 1
  const graph = readFileSync(join(bundle, graphs[k]));
  const session = await InferenceSession.create(runsHead ? graph : stageAlone(graph));
  const outputs = await session.run(Object.fromEntries(session.inputNames.map((name, i) => [name, features[i]])));
  features = session.outputNames.filter((name) => name !== "logits").map((name) => outputs[name]);
  if (!runsHead) { notRun += family.head_cost[k]; continue; }
  const stay = here.flatMap((one, row) => {
    one.evidence = one.evidence.map((sum, c) => (policy.combine ? sum : 0) + policy.confidence_scale[k]
      * (outputs.logits.data[row * one.evidence.length + c] - (policy.adjust_tau?.[k] ?? 0) * (family.log_prior?.[c] ?? 0)));
    const best = one.evidence.reduce((best, value, c, all) => (value > all[best] ? c : best), 0);
    const share = policy.combine ? 1 / (k + 1) : 1; // a policy that combines decides by the mean over the exits
    const confidence = confidenceOf(one.evidence.map((v) => share * (v - one.evidence[best])), policy.measure);
    if (!last && !(confidence > policy.thresholds[k])) return [row];
    answers[one.image] = { class: manifest.class_names[best], confidence, exit: k + 1, cost: family.cost[k] - notRun };
    return [];
  });
  [features, here] = [features.map((tensor) => keep(tensor, stay)), stay.map((row) => here[row])];
}
for (const answer of answers) console.log(JSON.stringify(answer));
