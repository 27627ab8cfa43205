// Connects the parts of the page. Everything is computed here, on the visitor's device.

import { allowedShare, watchBattery, whyMissing } from "./battery.js";
import { Camera } from "./camera.js";
import { listenForImages } from "./choose_image.js";
import { Curve } from "./curve.js";
import { Figures } from "./figures.js";
import { Journey } from "./journey.js";
import { ladder } from "./ladder.js";
import { openModel } from "./model.js";
import { readFile, readFrame } from "./read_image.js";
import { networkPixels } from "./resize.js";
import { cost, element, percent } from "./text.js";

const TOP = 5;
const at = (id) => document.getElementById(id);
const fail = (message) => { at("error").textContent = message; };

class Page {
  constructor(model, site) {
    this.model = model;
    this.points = model.family.points;
    this.rungs = ladder(this.points, model.defaultPoint);
    this.rung = this.rungs.findIndex((point) => point.name === model.defaultPoint);
    this.image = null;
    this.work = Promise.resolve();
    this.showModel(site);
    at("page").hidden = false;
    this.curve = new Curve(at("curve"), this.points, this.rungs, (rung) => { at("follow").checked = false; this.setRung(rung); });
    this.journey = new Journey(at("journey"), at("result"), { exits: model.exits, cost: model.family.cost, head_cost: model.family.head_cost });
    this.figures = new Figures(at("figures"), at("shares"), at("clear"), model.exits);
    this.camera = new Camera(at("video"), (video) => this.onFrame(video));
    this.listen();
    this.showPoint();
  }

  get point() { return this.rungs[this.rung]; }

  showModel(site) {
    const [height, width] = this.model.shape;
    document.title = `${site.name} \u2013 elfnet`;
    at("model-name").textContent = site.name;
    at("model-line").textContent = `${this.model.classNames.length} classes, ${this.model.exits} exits, ${width} \u00d7 ${height} pixels, ` +
      `${this.points.length} operating points from ${this.model.family.n.toLocaleString("en")} calibration images`;
    at("runtime").textContent = `Computed by ONNX Runtime Web ${site.onnxruntime_web}, on one thread.`;
  }

  listen() {
    listenForImages(at("drop"), at("file"), (files) => this.queue(() => this.onFiles(files)));
    const missing = Camera.missing();
    at("camera").disabled = missing !== null;
    at("camera-note").hidden = missing === null;
    at("camera-note").textContent = missing === null ? "" : `No camera: ${missing} Image files work.`;
    at("camera").addEventListener("click", () => this.toggleCamera());
    at("follow").addEventListener("change", () => this.followBattery());
    at("battery-slider").addEventListener("input", () => this.onBattery(at("battery-slider").value / 100, false));
  }

  /** One thing after the other: the network computes one batch at a time. */
  queue(job) {
    this.work = this.work.then(job).catch((error) => fail(error.message));
    return this.work;
  }

  setRung(rung) {
    if (rung === this.rung) return;
    this.rung = rung;
    this.showPoint();
    if (this.image && !this.camera.running) this.queue(() => this.classify(this.image, { count: false }));
  }

  showPoint() {
    const { name, expected } = this.point;
    this.curve.show(this.rung);
    this.curve.showService(this.points.find((point) => point.name === this.model.defaultPoint));
    at("dial-text").replaceChildren(
      element("strong", { text: name === this.model.defaultPoint ? `${name}, the default` : name }),
      `accuracy ${percent(expected.balanced_accuracy, 1)}, mean cost ${cost(expected.mean_cost)}, at most ${cost(expected.worst_cost)}`,
    );
    this.figures.show(this.point);
    if (!this.image) this.journey.showPoint(this.point);
  }

  async onFiles(files) {
    fail("");
    this.stopCamera();
    at("drop").setAttribute("aria-busy", "true");
    for (const file of files) {
      try {
        const image = networkPixels(await readFile(file), this.model.preprocessing);
        this.preview(file);
        await this.classify(image);
      } catch (error) {
        fail(error.message);
      }
    }
    at("drop").removeAttribute("aria-busy");
  }

  preview(file) {
    const picture = at("preview");
    URL.revokeObjectURL(picture.src);
    picture.src = URL.createObjectURL(file);
    picture.alt = file.name;
    picture.hidden = false;
    picture.onload = () => at("drop").classList.toggle("pixelated", picture.naturalWidth <= 96);
    at("drop-hint").textContent = file.name || "pasted image";
  }

  /** Classify one image and show it. With `explain`, all exits are run afterwards. */
  async classify(image, { count = true, explain = true } = {}) {
    const point = this.point;
    const inputs = this.model.inputsOf(point.name);
    const start = performance.now();
    const [answer] = await this.model.classify(image, inputs);
    const ms = performance.now() - start;
    this.image = image;
    if (count) this.figures.add(answer, ms);
    this.figures.show(this.point);
    this.show(point, answer, ms);
    if (!explain) return;
    await new Promise((resolve) => setTimeout(resolve)); // the browser draws the answer first
    this.showJourney(point, answer, await this.model.atEveryExit(image, inputs), ms);
  }

  showJourney(point, answer, all, ms) {
    const name = (index) => (index === null ? "not sure enough" : this.model.classNames[index]);
    // Without the answers of all exits, only that of the exit taken is known.
    const ofExit = (read) => Array.from({ length: this.model.exits }, (_, i) => (all ? read(all[i]) : i + 1 === answer.exit ? read(answer) : null));
    this.journey.show(point, {
      label: name(answer.classIndex),
      confidence: answer.confidence,
      exit: answer.exit,
      cost: answer.cost,
      confidence_by_exit: ofExit((one) => one.confidence),
      label_by_exit: ofExit((one) => name(one.classIndex)),
    }, { point: point.name, engineMs: ms });
  }

  show(point, answer, ms) {
    this.showJourney(point, answer, null, ms);
    const best = Array.from(answer.probabilities, (share, index) => ({ share, index })).sort((a, b) => b.share - a.share).slice(0, TOP);
    at("classes").replaceChildren(...best.map(({ share, index }) => {
      const level = element("span", { className: "level" });
      level.style.width = `${100 * share}%`;
      return element("li", {},
        element("span", { className: "name", text: this.model.classNames[index], title: this.model.classNames[index] }),
        element("div", { className: "meter" }, level),
        element("span", { className: "share-text", text: percent(share, 1) }));
    }));
  }

  async toggleCamera() {
    fail("");
    if (this.camera.running) {
      this.stopCamera();
      return;
    }
    try {
      await this.camera.start();
      at("preview").hidden = true;
      at("video").hidden = false;
      at("camera").textContent = "Stop the camera";
      at("drop-hint").textContent = "Frames are classified as fast as this device can.";
    } catch (error) {
      fail(error.message);
    }
  }

  stopCamera() {
    if (!this.camera.running) return;
    this.camera.stop();
    at("video").hidden = true;
    at("camera").textContent = "Use the camera";
    at("drop-hint").textContent = "Drop an image here, paste one, or";
  }

  onFrame(video) {
    return this.queue(async () => {
      const frame = readFrame(video);
      if (frame && this.camera.running) await this.classify(networkPixels(frame, this.model.preprocessing), { explain: false });
    });
  }

  async startBattery() {
    const there = await watchBattery((level, charging) => this.onBattery(level, charging));
    at("battery-meter").hidden = !there;
    at("battery-slider").hidden = there;
    at("follow").checked = there;
    const rule = "Up to 20 % the cheapest setting, from 80 % on or while charging the most expensive one, in proportion between.";
    at("battery-note").textContent = there ? rule : `No battery level: ${whyMissing("battery level")} Set one with the slider. ${rule}`;
    if (!there) this.onBattery(at("battery-slider").value / 100, false);
    this.followBattery();
  }

  onBattery(level, charging) {
    this.battery = { level, charging };
    at("battery-meter").value = level;
    at("battery-text").textContent = `${percent(level)}${charging ? ", charging" : ""}`;
    if (!at("battery-slider").hidden) at("follow").checked ||= document.activeElement === at("battery-slider");
    this.followBattery();
  }

  followBattery() {
    if (!at("follow").checked || !this.battery) return;
    const share = this.battery.charging ? 1 : allowedShare(this.battery.level);
    const costs = this.rungs.map((point) => point.expected.mean_cost);
    const budget = costs[0] + share * (costs.at(-1) - costs[0]);
    this.setRung(costs.filter((own) => own <= budget + 1e-9).length - 1);
  }
}

async function start() {
  const [site, model] = await Promise.all([fetch("site.json").then((answer) => answer.json()), openModel()]);
  const page = new Page(model, site);
  await page.startBattery();
  document.body.dataset.ready = "true";
}

start().catch((error) => {
  at("broken").textContent = error.message;
  at("broken").hidden = false;
  at("model-line").textContent = "The network cannot be used.";
  document.body.dataset.ready = "broken";
});
