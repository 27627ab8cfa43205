// What was classified on this device so far: time per image, and the share of images at each exit.

import { cost, element, milliseconds, percent } from "./text.js";

const DASH = "\u2013";
const MAX_TIMES = 500;

export class Figures {
  constructor(place, shares, clear, exits) {
    this.clear = clear;
    this.values = Object.fromEntries(["images", "last image", "median", "mean cost"].map((name) => {
      const value = element("dd", { text: DASH });
      place.append(element("div", {}, element("dt", { text: name }), value));
      return [name, value];
    }));
    this.rows = Array.from({ length: exits }, (_, i) => {
      const level = element("span", { className: "level" });
      const expected = element("span", { className: "threshold" });
      const text = element("span", { text: DASH });
      shares.append(element("div", { className: "share" }, element("span", { text: `Exit ${i + 1}` }), element("div", { className: "meter" }, level, expected), text));
      return { level, expected, text };
    });
    clear.addEventListener("click", () => { this.reset(); this.show(this.point); });
    this.reset();
  }

  reset() {
    Object.assign(this, { counts: this.rows.map(() => 0), times: [], costs: 0 });
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
    this.rows.forEach((row, i) => {
      const [share, expected] = [images ? this.counts[i] / images : 0, point.expected.exit_share[i]];
      row.level.style.width = `${100 * share}%`;
      row.expected.style.left = `${100 * expected}%`;
      row.text.textContent = `${images ? percent(share) : DASH}, expected ${percent(expected)}`;
    });
  }
}
