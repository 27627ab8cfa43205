"use strict";
// Shows the point that each run uses within the budget, by the rule of BudgetRule.best_within. A point is a row: label,
// limit, rank, and as text the cost, the accuracy of all, many, medium and few, and the share of examples at each exit.
for (const widget of document.querySelectorAll(".slider")) {
  const runs = JSON.parse(widget.querySelector("script").textContent).runs;
  const slider = widget.querySelector("input[type=range]");
  const budget = widget.querySelector(".budget");
  const panels = [...widget.querySelectorAll(".panel")];
  const dash = "–";
  const [cost, accuracies, shares] = [3, 4, 8];
  const bestWithin = (points, limit) => {
    let best = null;
    for (const point of points) {
      if (point[1] > limit + 1e-6) continue;
      if (best === null || point[2] > best[2] || (point[2] === best[2] && point[1] < best[1])) best = point;
    }
    return best;
  };
  const show = () => {
    const limit = Number(slider.value);
    const chosen = widget.querySelector("input[type=radio]:checked");
    const rule = chosen === null ? 0 : Number(chosen.value);
    budget.textContent = limit.toFixed(3);
    slider.setAttribute("aria-valuetext", `${limit.toFixed(3)} times the plain backbone`);
    panels.forEach((panel, run) => {
      const rules = runs[run];
      const point = bestWithin(rules[Math.min(rule, rules.length - 1)], limit);
      const text = (place) => (point === null ? dash : point[place]);
      const width = (place) => `${Number(text(place)) || 0}%`;
      const each = (name, set) => {
        for (const node of panel.querySelectorAll(`[data-${name}]`)) set(node, node.dataset[name]);
      };
      each("text", (node, what) => {
        node.textContent = what === "cost" ? text(cost) : point === null ? "no point within this budget" : point[0];
      });
      each("field", (node, group) => (node.textContent = text(accuracies + Number(group))));
      each("bar", (node, group) => (node.style.width = width(accuracies + Number(group))));
      each("share", (node, exit) => (node.style.width = width(shares + Number(exit))));
      each("percent", (node, exit) => (node.textContent = text(shares + Number(exit))));
    });
  };
  widget.classList.add("live");
  widget.addEventListener("input", show);
  show();
}
