// Figures in a list, and a bar per exit: the share of images that stopped there, with a mark at the expected share.

import { element, percent } from "./text.js";

export const DASH = "\u2013";

/** Append a figure per name, and return the elements of the values by name. */
export function figureList(place, names) {
  return Object.fromEntries(names.map((name) => {
    const value = element("dd", { text: DASH });
    place.append(element("div", {}, element("dt", { text: name }), value));
    return [name, value];
  }));
}

export class Shares {
  constructor(place, exits) {
    this.rows = Array.from({ length: exits }, (_, i) => {
      const level = element("span", { className: "level" });
      const expected = element("span", { className: "threshold" });
      expected.hidden = true;
      const text = element("span", { text: DASH });
      place.append(element("div", { className: "share" }, element("span", { text: `Exit ${i + 1}` }), element("div", { className: "meter" }, level, expected), text));
      return { level, expected, text };
    });
  }

  /** Both have an entry per exit; `shares` is null before the first image. */
  show(shares, expected) {
    this.rows.forEach((row, i) => {
      row.level.style.width = `${shares === null ? 0 : 100 * shares[i]}%`;
      row.expected.hidden = false;
      row.expected.style.left = `${100 * expected[i]}%`;
      row.text.textContent = `${shares === null ? DASH : percent(shares[i])}, expected ${percent(expected[i])}`;
    });
  }
}
