// The level of the battery sets the compute dial.

const LOW = 0.2;
const HIGH = 0.8;

/** Why a browser interface is missing here. */
export function whyMissing(what) {
  if (!window.isSecureContext) return `Browsers give a page the ${what} only over HTTPS or on localhost. This page came from ${location.origin}.`;
  return `This browser does not give pages the ${what}.`;
}

/** The share of the dial's range that a battery level allows: none up to 20 %, all from 80 % on, linear between. */
export function allowedShare(level) {
  return Math.min(1, Math.max(0, (level - LOW) / (HIGH - LOW)));
}

/** Call `onLevel(level, charging)` now and at every change. Returns false if there is no battery to read. */
export async function watchBattery(onLevel) {
  if (typeof navigator.getBattery !== "function") return false;
  let battery;
  try {
    battery = await navigator.getBattery();
  } catch {
    return false;
  }
  const tell = () => onLevel(battery.level, battery.charging);
  for (const change of ["levelchange", "chargingchange"]) battery.addEventListener(change, tell);
  tell();
  return true;
}
