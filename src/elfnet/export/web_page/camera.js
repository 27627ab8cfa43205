// The camera: frames are classified one after the other, as fast as the device can.

import { whyMissing } from "./battery.js";

export class Camera {
  /** `onFrame(video)` returns a promise; the next frame is read when it is done. */
  constructor(video, onFrame) {
    Object.assign(this, { video, onFrame, stream: null });
  }

  /** Why there is no camera, or null. */
  static missing() {
    return navigator.mediaDevices?.getUserMedia ? null : whyMissing("camera");
  }

  get running() { return this.stream !== null; }

  async start() {
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 640 } }, audio: false });
    } catch (error) {
      const reasons = { NotAllowedError: "its use was not allowed", NotFoundError: "none was found", NotReadableError: "another program uses it" };
      throw new Error(`The camera cannot be used: ${reasons[error.name] ?? error.message}. Choose a file instead.`);
    }
    this.video.srcObject = this.stream;
    await this.video.play();
    this.loop(this.stream);
  }

  async loop(stream) {
    while (this.stream === stream) {
      if (!document.hidden) await this.onFrame(this.video);
      await new Promise((resolve) => setTimeout(resolve, document.hidden ? 250 : 0));
    }
  }

  stop() {
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    this.stream = null;
    this.video.srcObject = null;
  }
}
