// Accuracy against cost, with a handle for the operating point: mouse, touch and keyboard.

import { costAndTime, drawing, percent } from "./text.js";

const BOX = { left: 56, right: 18, top: 14, bottom: 46 };

export class Curve {
  /** `rungs` are the points that the handle can take; `onMove(index)` is called when the user moves it. */
  constructor(place, points, rungs, onMove) {
    this.rungs = rungs;
    this.onMove = onMove;
    this.current = 0;
    const wide = place.clientWidth >= 480;
    this.width = wide ? 640 : 400;
    this.height = wide ? 360 : 300;
    const costs = points.map((point) => point.expected.mean_cost);
    const accuracies = points.map((point) => point.expected.balanced_accuracy);
    this.costs = padded(Math.min(...costs, 0), Math.max(...costs));
    this.accuracies = padded(Math.min(...accuracies), Math.max(...accuracies));
    this.svg = drawing("svg", { viewBox: `0 0 ${this.width} ${this.height}`, role: "group", "aria-label": "Accuracy against mean cost" });
    this.drawAxes();
    for (const point of points) this.svg.append(this.circle(point, 3, "dot"));
    const line = rungs.map((point) => `${this.x(point)},${this.y(point)}`).join(" ");
    this.svg.append(drawing("polyline", { points: line, class: "line" }));
    for (const point of rungs) this.svg.append(this.circle(point, 3.5, "rung"));
    this.service = drawing("circle", { r: 9, class: "service" });
    this.guides = [drawing("line", { class: "guide" }), drawing("line", { class: "guide" })];
    this.handle = drawing("g", {
      class: "handle", tabindex: "0", role: "slider", "aria-label": "Operating point",
      "aria-valuemin": "1", "aria-valuemax": String(rungs.length),
    });
    this.handle.append(drawing("circle", { r: 22, class: "reach" }), drawing("circle", { r: 14, class: "ring" }), drawing("circle", { r: 9 }));
    this.svg.append(...this.guides, this.service, this.handle);
    place.replaceChildren(this.svg);
    this.listen();
  }

  x(point) { return scale(point.expected.mean_cost, this.costs, BOX.left, this.width - BOX.right); }
  y(point) { return scale(point.expected.balanced_accuracy, this.accuracies, this.height - BOX.bottom, BOX.top); }
  circle(point, r, name) { return drawing("circle", { cx: this.x(point), cy: this.y(point), r, class: name }); }

  drawAxes() {
    const bottom = this.height - BOX.bottom;
    for (const value of ticks(this.accuracies)) {
      const y = scale(value, this.accuracies, bottom, BOX.top);
      this.svg.append(
        drawing("line", { x1: BOX.left, x2: this.width - BOX.right, y1: y, y2: y, class: "gridline" }),
        drawing("text", { x: BOX.left - 8, y: y + 4, "text-anchor": "end" }, percent(value)),
      );
    }
    for (const value of ticks(this.costs)) {
      const x = scale(value, this.costs, BOX.left, this.width - BOX.right);
      this.svg.append(drawing("text", { x, y: bottom + 20, "text-anchor": "middle" }, Number(value.toFixed(2)).toString()));
    }
    this.svg.append(drawing("text", { x: (BOX.left + this.width - BOX.right) / 2, y: this.height - 4, "text-anchor": "middle" }, "mean cost (1 = network without exits)"));
  }

  /** Move the handle to the point with this index, without calling `onMove`. */
  show(rung) {
    this.current = rung;
    const point = this.rungs[rung];
    const [x, y] = [this.x(point), this.y(point)];
    this.handle.setAttribute("transform", `translate(${x} ${y})`);
    this.handle.setAttribute("aria-valuenow", String(rung + 1));
    this.handle.setAttribute(
      "aria-valuetext",
      `${point.name}: accuracy ${percent(point.expected.balanced_accuracy, 1)}, mean cost ${costAndTime(point)}`,
    );
    const ends = { x1: x, y1: y };
    for (const [name, value] of Object.entries({ ...ends, x2: x, y2: this.height - BOX.bottom })) this.guides[0].setAttribute(name, value);
    for (const [name, value] of Object.entries({ ...ends, x2: BOX.left, y2: y })) this.guides[1].setAttribute(name, value);
  }

  /** Mark the operating point of the service. */
  showService(point) {
    this.service.setAttribute("cx", this.x(point));
    this.service.setAttribute("cy", this.y(point));
  }

  move(rung) {
    const within = Math.max(0, Math.min(this.rungs.length - 1, rung));
    if (within === this.current) return;
    this.show(within);
    this.onMove(within);
  }

  listen() {
    const page = Math.max(2, Math.round(this.rungs.length / 8));
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: page, PageDown: -page, Home: -Infinity, End: Infinity };
    this.handle.addEventListener("keydown", (event) => {
      if (!(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      this.move(this.current + steps[event.key]);
    });
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      this.svg.setPointerCapture(event.pointerId);
      this.handle.focus({ preventScroll: true, focusVisible: false });
      this.move(this.nearest(event));
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (this.svg.hasPointerCapture(event.pointerId)) this.move(this.nearest(event));
    });
  }

  nearest(event) {
    const box = this.svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * this.width;
    const distances = this.rungs.map((point) => Math.abs(this.x(point) - x));
    return distances.indexOf(Math.min(...distances));
  }
}

function padded(low, high) {
  const space = Math.max((high - low) * 0.06, 1e-3);
  return [low === 0 ? 0 : low - space, high + space];
}

function scale(value, [low, high], from, to) {
  return from + ((value - low) / (high - low)) * (to - from);
}

/** About six round values within a range. */
function ticks([low, high]) {
  const rough = (high - low) / 6;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
  const values = [];
  for (let value = Math.ceil(low / step) * step; value <= high + 1e-12; value += step) values.push(value);
  return values;
}
