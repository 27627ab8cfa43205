// The images of this session, grouped by the exit that each takes at the current operating point.

import { element, percent } from "./text.js";

const MAX_IMAGES = 60;

export class Gallery {
  /** `onPick(entry)` is called when the user selects an image. */
  constructor(place, clear, exits, onPick) {
    this.entries = [];
    this.clear = clear;
    this.onPick = onPick;
    this.columns = Array.from({ length: exits }, (_, i) => {
      const title = element("h3", { text: `Exit ${i + 1}` });
      const tiles = element("div", { className: "tiles" });
      place.append(element("div", {}, title, tiles));
      return { title, tiles };
    });
    clear.addEventListener("click", () => {
      for (const entry of this.entries) URL.revokeObjectURL(entry.url);
      this.entries = [];
      this.show(null);
    });
  }

  add(entry) {
    this.entries.unshift(entry);
    for (const old of this.entries.splice(MAX_IMAGES)) URL.revokeObjectURL(old.url);
  }

  show(point) {
    this.clear.disabled = this.entries.length === 0;
    const tiles = this.columns.map(() => []);
    for (const entry of this.entries) {
      const seen = entry.explanation.points.find((view) => view.operating_point === point.name);
      const picture = element("img");
      picture.src = entry.url;
      picture.alt = "";
      const button = element("button", { title: `${entry.name}: ${seen.label}, ${percent(seen.confidence)}` }, picture);
      button.type = "button";
      button.setAttribute("aria-label", `${entry.name}: ${seen.label}, ${percent(seen.confidence)} sure; show it again`);
      button.addEventListener("click", () => this.onPick(entry));
      tiles[seen.exit - 1].push(button);
    }
    this.columns.forEach((column, i) => {
      column.title.textContent = `Exit ${i + 1} (${tiles[i].length})`;
      column.tiles.replaceChildren(...tiles[i]);
    });
  }
}
