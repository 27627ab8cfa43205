// Choosing images: by drop, paste, file dialogue, or from the samples.

import { element, megabytes } from "./text.js";

const MAX_FILES = 20;

export function listenForImages(drop, input, onFiles) {
  const choose = (files) => {
    const several = [...files].slice(0, MAX_FILES);
    if (several.length) onFiles(several);
  };
  input.addEventListener("change", () => {
    choose(input.files);
    input.value = "";
  });
  // The whole page accepts a drop; otherwise the browser would open a file dropped beside the area.
  let inside = 0;
  const over = (change) => {
    inside = Math.max(0, inside + change);
    drop.classList.toggle("over", inside > 0);
  };
  addEventListener("dragenter", (event) => { event.preventDefault(); over(1); });
  addEventListener("dragleave", () => over(-1));
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    inside = 0;
    over(0);
    choose(event.dataTransfer.files);
  });
  addEventListener("paste", (event) => choose(event.clipboardData.files));
}

/** Checked before sending: a refused upload may look like a broken connection. */
export function requireSmall(name, bytes, limit) {
  if (bytes > limit) throw new Error(`${name} has ${megabytes(bytes)}, the limit is ${megabytes(limit)}`);
}

export function showSamples(block, place, samples, onFiles, onError) {
  block.hidden = samples.length === 0;
  for (const sample of samples) {
    const picture = element("img");
    picture.src = sample.url;
    picture.alt = "";
    picture.loading = "lazy";
    const button = element("button", { title: sample.name }, picture);
    button.type = "button";
    button.setAttribute("aria-label", sample.name);
    button.addEventListener("click", async () => {
      try {
        const content = await (await fetch(sample.url)).blob();
        onFiles([new File([content], sample.name, { type: content.type })]);
      } catch {
        onError("the service cannot be reached");
      }
    });
    place.append(button);
  }
}
