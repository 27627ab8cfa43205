// One image at every exit: prediction, confidence and threshold, and the exit that is taken.

import { cost, element, exitClass, milliseconds, percent } from "./text.js";

const NEVER = 1;

export class Journey {
  constructor(place, result, model) {
    this.model = model;
    this.result = result;
    this.stages = model.cost.map((_, i) => new Stage(i, model));
    place.replaceChildren(...this.stages.map((stage) => stage.item));
  }

  /** Show the thresholds of an operating point, before there is an image. */
  showPoint(point) {
    this.stages.forEach((stage, i) => stage.showThreshold(point, i));
  }

  /** Show an image: `seen` is the explanation for this point, `measured` the point and time of the computation. */
  show(point, seen, measured) {
    this.stages.forEach((stage, i) => {
      stage.showThreshold(point, i);
      stage.showImage(point, seen, i);
    });
    const taken = measured.point === point.name ? `, computed in ${milliseconds(measured.engineMs)}` : "";
    const text = `, ${percent(seen.confidence)} sure. Exit ${seen.exit} of ${this.model.exits}, cost ${cost(seen.cost)}${taken}.`;
    // A screen reader reads every change aloud.
    if (this.result.textContent !== seen.label + text) this.result.replaceChildren(element("strong", { text: seen.label }), text);
  }
}

class Stage {
  constructor(i, model) {
    this.model = model;
    this.last = i === model.exits - 1;
    this.level = element("span", { className: "level" });
    this.threshold = element("span", { className: "threshold" });
    this.says = element("p", { className: "stage-says", text: "\u2013" });
    this.note = element("p", { className: "stage-note", text: "\u00a0" });
    this.item = element("li", { className: "stage" },
      element("div", { className: "stage-top" },
        element("b", { text: `Exit ${i + 1}` }),
        this.spent = element("span", { className: "muted", text: "\u00a0" })),
      element("div", { className: "meter" }, this.level, this.threshold),
      this.says, this.note);
  }

  showThreshold(point, i) {
    const limit = this.last ? null : point.policy.thresholds[i];
    this.limit = limit;
    this.spent.textContent = `cost ${cost(costToExit(this.model, point.policy, i))}`;
    this.threshold.hidden = limit === null;
    if (limit !== null) this.threshold.style.left = percent(limit, 2).replace(" ", "");
    this.note.textContent = this.last
      ? "all remaining images exit here"
      : limit >= NEVER ? (point.policy.combine ? "no image exits here" : "no image exits here: the head is not run") : `exits above ${percent(limit, 1)}`;
  }

  showImage(point, seen, i) {
    // An exit that was not computed has no confidence.
    const confidence = seen.confidence_by_exit[i];
    this.level.style.width = percent(confidence ?? 0, 2).replace(" ", "");
    this.level.style.transitionDelay = `${0.12 * i}s`;
    this.says.textContent = confidence === null ? "\u2013" : `${seen.label_by_exit[i]}, ${percent(confidence, 1)}`;
    const exit = i + 1;
    this.item.className = `stage${exit === seen.exit ? " left" : ""}${exit > seen.exit ? " beyond" : ""}`;
    if (exit === seen.exit) this.note.textContent = this.last ? "exits here, at the last exit" : `exits here: above ${percent(this.limit, 1)}`;
    else if (exit < seen.exit && this.limit < NEVER) this.note.textContent = `continues: not above ${percent(this.limit, 1)}`;
    else if (exit > seen.exit) this.note.textContent = "not computed at this operating point";
  }
}

/** Cost up to exit i; heads at which no image can exit are not run and cost nothing. */
function costToExit(model, policy, i) {
  const skipped = model.head_cost.filter((_, k) => k <= i && !policy.combine && policy.thresholds[k] >= NEVER);
  return model.cost[i] - skipped.reduce((sum, spent) => sum + spent, 0);
}

/** Show the predictions at all points: as ranges of cost with the same exit and label, and as a table. */
export function showElsewhere(place, rungs, explanation, current) {
  const seen = new Map(explanation.points.map((view) => [view.operating_point, view]));
  const ranges = [];
  for (const rung of rungs) {
    const view = seen.get(rung.name);
    const last = ranges.at(-1);
    if (last && last.view.label === view.label && last.view.exit === view.exit) last.rungs.push(rung);
    else ranges.push({ view, rungs: [rung] });
  }
  const open = place.querySelector("details")?.open ?? false;
  const strip = element("div", { className: "strip" }, ...rungs.map((rung) =>
    element("span", { className: exitClass(seen.get(rung.name).exit), title: `${rung.name}: exit ${seen.get(rung.name).exit}` })));
  strip.setAttribute("aria-hidden", "true");
  const list = element("ul", { className: "ranges" }, ...ranges.map(({ view, rungs: inside }) =>
    element("li", { className: inside.some((rung) => rung.name === current.name) ? "now" : "" },
      element("span", { className: `swatch ${exitClass(view.exit)}` }),
      element("span", { className: "muted", text: `mean cost ${between(inside)}` }),
      element("span", { text: `${view.label} at exit ${view.exit}` }))));
  const rows = explanation.points.map((view) => element("tr", { className: view.operating_point === current.name ? "now" : "" },
    ...[view.operating_point, view.label, percent(view.confidence, 1), view.exit, cost(view.cost)].map((text) => element("td", { text }))));
  const head = element("tr", {}, ...["operating point", "prediction", "confidence", "exit", "cost"].map((text) => element("th", { text })));
  for (const cell of head.children) cell.scope = "col";
  const table = element("div", { className: "scroll" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
  const all = element("details", {}, element("summary", { text: `All ${explanation.points.length} points` }), table);
  all.open = open;
  place.replaceChildren(strip, list, all);
}

function between(rungs) {
  const [low, high] = [rungs[0], rungs.at(-1)].map((rung) => cost(rung.expected.mean_cost));
  return low === high ? low : `${low}\u2013${high}`;
}
