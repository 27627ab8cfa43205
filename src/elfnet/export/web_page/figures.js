// What was classified on this device so far: time per image, and the share of images at each exit.

import { DASH, Shares, figureList } from "./shares.js";
import { cost, milliseconds } from "./text.js";

const MAX_TIMES = 500;

export class Figures {
  constructor(place, shares, clear, exits) {
    this.clear = clear;
    this.exits = exits;
    this.values = figureList(place, ["images", "last image", "median", "mean cost"]);
    this.shares = new Shares(shares, exits);
    clear.addEventListener("click", () => { this.reset(); this.show(this.point); });
    this.reset();
  }

  reset() {
    Object.assign(this, { counts: Array(this.exits).fill(0), times: [], costs: 0 });
  }

  add(answer, ms) {
    this.counts[answer.exit - 1] += 1;
    this.costs += answer.cost;
    this.times.push(ms);
    if (this.times.length > MAX_TIMES) this.times.shift();
  }

  show(point) {
    this.point = point;
    const images = this.counts.reduce((sum, count) => sum + count, 0);
    const sorted = [...this.times].sort((a, b) => a - b);
    this.clear.disabled = images === 0;
    this.values.images.textContent = images.toLocaleString("en");
    this.values["last image"].textContent = images ? milliseconds(this.times.at(-1)) : DASH;
    this.values.median.textContent = images ? milliseconds(sorted[sorted.length >> 1]) : DASH;
    this.values["mean cost"].textContent = images ? cost(this.costs / images) : DASH;
    this.shares.show(images ? this.counts.map((count) => count / images) : null, point.expected.exit_share);
  }
}
