// Statistics of all requests to the service, updated while the page is visible.

import { getTraffic } from "./api.js";
import { DASH, Shares, figureList } from "./shares.js";
import { cost, milliseconds, percent } from "./text.js";

const EVERY = 2000;
const or = (value, text) => (value === null ? DASH : text(value));

export class Traffic {
  /** `onPoint(name)` is called with the service's operating point at every update. */
  constructor(place, shares, drift, exits, onPoint) {
    Object.assign(this, { drift, onPoint });
    this.figures = figureList(place, ["requests/s", "median", "95th percentile", "waiting", "refused", "mean cost", "point"]);
    this.shares = new Shares(shares, exits);
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
    if (recent.exit_share !== null) this.shares.show(recent.exit_share, recent.expected_share);
    this.drift.textContent = recent.exit_drift === null
      ? `${recent.images} images so far; drift from calibration is shown from 100 on.`
      : `Last ${recent.images} images. Drift of the exits from calibration: ${recent.exit_drift.toFixed(3)} (0.1 is worth a look, 0.25 is a change). ` +
        `Mean confidence ${recent.confidence_drift >= 0 ? "above" : "below"} the calibrated accuracy by ${percent(Math.abs(recent.confidence_drift), 1)}.`;
    this.onPoint(traffic.operating_point);
  }
}
