// Connects the parts of the page. Everything shown depends on one operating point and one image.

import { explain, getModel, getPoint, getSamples } from "./api.js";
import { listenForImages, requireSmall, showSamples } from "./choose_image.js";
import { Curve } from "./curve.js";
import { Gallery } from "./gallery.js";
import { Journey, showElsewhere } from "./journey.js";
import { ladder } from "./ladder.js";
import { cost, costAndTime, element, percent } from "./text.js";
import { Traffic } from "./traffic.js";

const at = (id) => document.getElementById(id);
const fail = (message) => { at("error").textContent = message; };

async function start() {
  const [model, inForce, samples] = await Promise.all([getModel(), getPoint(), getSamples()]);
  document.title = `${model.name} \u2013 elfnet`;
  at("model-name").textContent = model.name;
  at("model-line").textContent =
    `${model.class_names.length} classes, ${model.exits} exits, ${model.image.width} \u00d7 ${model.image.height} pixels, ` +
    `${model.operating_points.length} operating points from ${model.calibration.n.toLocaleString("en")} calibration images`;

  at("dial-timing").textContent = model.timing === null ? "" : `Times are means per image on the machine of the service: ${model.timing}.`;

  const points = new Map(model.operating_points.map((point) => [point.name, point]));
  const rungs = ladder(model.operating_points, inForce.operating_point);
  const rungOf = (name) => nearestRung(rungs, points.get(name));
  const state = { rung: rungOf(inForce.operating_point), own: false, service: inForce.operating_point, image: null };
  const journey = new Journey(at("journey"), at("result"), model);
  const gallery = new Gallery(at("gallery"), at("gallery-clear"), model.exits, (entry) => { state.image = entry; preview(entry); show(); });
  const curve = new Curve(at("curve"), model.operating_points, rungs, (rung) => { state.rung = rung; state.own = true; show(); });

  function preview(entry) {
    at("preview").src = entry.url;
    at("preview").alt = entry.name;
    at("preview").hidden = false;
    at("drop-hint").textContent = entry.name;
  }

  function show() {
    const point = rungs[state.rung];
    curve.show(state.rung);
    curve.showService(points.get(state.service));
    at("dial-reset").disabled = !state.own;
    at("dial-text").replaceChildren(
      element("strong", { text: `${point.name}${state.own ? ", for this page" : ", the service\u2019s point"}` }),
      `accuracy ${percent(point.expected.balanced_accuracy, 1)}, mean cost ${costAndTime(point)}, at most ${cost(point.expected.worst_cost)}`,
    );
    gallery.show(point);
    if (state.image === null) {
      journey.showPoint(point);
      return;
    }
    const seen = state.image.explanation.points.find((view) => view.operating_point === point.name);
    journey.show(point, seen, state.image.measured);
    showElsewhere(at("elsewhere"), rungs, state.image.explanation, point);
  }

  async function classify(files) {
    fail("");
    at("drop").setAttribute("aria-busy", "true");
    for (const file of files) {
      try {
        const name = file.name || "pasted image";
        requireSmall(name, file.size, model.limits.body_bytes);
        const answer = await explain(file, name, state.own ? rungs[state.rung].name : null);
        const [found] = answer.answers;
        const entry = {
          name: found.name,
          url: URL.createObjectURL(file),
          explanation: found.explanation,
          measured: { point: answer.operating_point, engineMs: answer.engine_milliseconds },
        };
        gallery.add(entry);
        state.image = entry;
        preview(entry);
        show();
      } catch (error) {
        fail(error.message);
      }
    }
    at("drop").removeAttribute("aria-busy");
  }

  at("dial-reset").addEventListener("click", () => {
    state.own = false;
    state.rung = rungOf(state.service);
    show();
    curve.handle.focus();
  });
  listenForImages(at("drop"), at("file"), classify);
  showSamples(at("samples-block"), at("samples"), samples, classify, fail);
  new Traffic(at("traffic"), at("shares"), at("drift"), model.exits, (name) => {
    if (name === state.service) return;
    state.service = name;
    if (!state.own) state.rung = rungOf(name);
    show();
  });
  show();
  document.body.dataset.ready = "true";
}

/** The index of this point on the curve, or of the most expensive point that costs no more. */
function nearestRung(rungs, point) {
  const same = rungs.findIndex((rung) => rung.name === point.name);
  if (same >= 0) return same;
  const within = rungs.filter((rung) => rung.expected.mean_cost <= point.expected.mean_cost + 1e-9);
  return Math.max(0, within.length - 1);
}

start().catch((error) => fail(error.message));
