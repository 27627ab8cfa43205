// Images by drop, paste, file dialogue or from the samples.

import { element, megabytes } from "./text.js";

const MOST_AT_ONCE = 20;

export function listenForImages(drop, input, onFiles) {
  const hand = (files) => {
    const several = [...files].slice(0, MOST_AT_ONCE);
    if (several.length) onFiles(several);
  };
  input.addEventListener("change", () => {
    hand(input.files);
    input.value = "";
  });
  // The whole page takes a drop, so that a near miss does not open the file instead.
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
    hand(event.dataTransfer.files);
  });
  addEventListener("paste", (event) => hand(event.clipboardData.files));
}

/** Said before sending: a service that refuses a large body may be seen as a broken connection. */
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
