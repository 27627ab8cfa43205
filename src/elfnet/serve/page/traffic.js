// Statistics of all requests to the service, updated while the page is visible.

import { getTraffic } from "./api.js";
import { cost, element, milliseconds, percent } from "./text.js";

const EVERY = 2000;
const DASH = "\u2013";
const or = (value, text) => (value === null ? DASH : text(value));

export class Traffic {
  /** `onPoint(name)` is called with the service's operating point at every update. */
  constructor(place, shares, drift, exits, onPoint) {
    Object.assign(this, { drift, onPoint });
    this.figures = Object.fromEntries(["requests/s", "median", "95th percentile", "waiting", "refused", "mean cost", "point"].map((name) => {
      const value = element("dd", { text: DASH });
      place.append(element("div", {}, value, element("dt", { text: name })));
      return [name, value];
    }));
    // dt must come before dd for screen readers; CSS shows the number first.
    for (const group of place.children) group.prepend(group.lastChild);
    this.shares = Array.from({ length: exits }, (_, i) => {
      const level = element("span", { className: "level" });
      const expected = element("span", { className: "threshold" });
      expected.hidden = true;
      const text = element("span", { text: DASH });
      shares.append(element("div", { className: "share" }, element("span", { text: `Exit ${i + 1}` }), element("div", { className: "meter" }, level, expected), text));
      return { level, expected, text };
    });
    this.tick();
  }

  async tick() {
    if (!document.hidden) {
      try {
        this.show(await getTraffic());
      } catch {
        this.drift.textContent = "The service cannot be reached.";
      }
    }
    setTimeout(() => this.tick(), EVERY);
  }

  show(traffic) {
    const recent = traffic.recent;
    const text = {
      "requests/s": traffic.requests_per_second.toFixed(1),
      median: or(traffic.p50_ms, milliseconds),
      "95th percentile": or(traffic.p95_ms, milliseconds),
      waiting: `${traffic.queue} of ${traffic.queue_limit}`,
      refused: String(traffic.refused),
      "mean cost": or(recent.mean_cost, (value) => `${cost(value)} (${cost(recent.expected_cost)})`),
      point: traffic.now,
    };
    for (const [name, value] of Object.entries(text)) this.figures[name].textContent = value;
    this.figures.point.title = traffic.shedding ? `shedding load; the point that was set is ${traffic.operating_point}` : "";
    this.shares.forEach((share, i) => {
      if (recent.exit_share === null) return;
      share.level.style.width = `${100 * recent.exit_share[i]}%`;
      share.expected.hidden = false;
      share.expected.style.left = `${100 * recent.expected_share[i]}%`;
      share.text.textContent = `${percent(recent.exit_share[i])}, expected ${percent(recent.expected_share[i])}`;
    });
    this.drift.textContent = recent.exit_drift === null
      ? `${recent.images} images so far; drift from calibration is shown from 100 on.`
      : `Last ${recent.images} images. Drift of the exits from calibration: ${recent.exit_drift.toFixed(3)} (0.1 is worth a look, 0.25 is a change). ` +
        `Mean confidence ${recent.confidence_drift >= 0 ? "above" : "below"} the calibrated accuracy by ${percent(Math.abs(recent.confidence_drift), 1)}.`;
    this.onPoint(traffic.operating_point);
  }
}
