// Formatting numbers and creating elements. Data is always inserted as text, never as markup.

export const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;
export const cost = (value) => value.toFixed(2);
export const milliseconds = (value) => (value < 1 ? value.toFixed(2) : value < 10 ? value.toFixed(1) : value.toFixed(0)) + " ms";
/** The mean cost of an operating point, and its time on the machine of the service if that was measured. */
export const costAndTime = (point) =>
  cost(point.expected.mean_cost) + ((point.milliseconds ?? null) === null ? "" : ` (${milliseconds(point.milliseconds)})`);
/** Rounded up, so that a size above a limit also looks so. */
export const megabytes = (bytes) => `${Math.ceil(bytes / 1e4) / 100} MB`;

/** An element with a class, text and children. */
export function element(tag, { className = "", text = null, title = null } = {}, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== null) made.textContent = text;
  if (title !== null) made.title = title;
  made.append(...children);
  return made;
}

export function drawing(tag, attributes, text = null) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  return made;
}

export const exitClass = (exit) => (exit <= 4 ? `exit-${exit}` : "exit-more");
