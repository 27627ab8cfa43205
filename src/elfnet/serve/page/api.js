// Requests to the service that gave us this page, and to no other.

async function answered(response) {
  const content = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(content.error || `the service answered ${response.status}`);
  return content;
}

async function get(path) {
  return answered(await fetch(path, { headers: { Accept: "application/json" } }));
}

export const getModel = () => get("/v1/model");
export const getPoint = () => get("/v1/operating-point");
export const getSamples = () => get("/v1/samples");
export const getTraffic = () => get("/v1/traffic");

/** Classify one image with every exit explained; `point` null means the service's own. */
export async function explain(file, name, point) {
  const form = new FormData();
  form.append("image", file, name);
  form.append("explain", "true");
  if (point !== null) form.append("operating_point", point);
  let response;
  try {
    response = await fetch("/v1/predict", { method: "POST", body: form });
  } catch {
    throw new Error("the service cannot be reached");
  }
  return answered(response);
}
