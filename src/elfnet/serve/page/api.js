// Requests to the service. The page sends requests to no other host.

async function parseResponse(response) {
  const content = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(content.error || `the service responded with status ${response.status}`);
  return content;
}

async function get(path) {
  return parseResponse(await fetch(path, { headers: { Accept: "application/json" } }));
}

export const getModel = () => get("/v1/model");
export const getPoint = () => get("/v1/operating-point");
export const getSamples = () => get("/v1/samples");
export const getTraffic = () => get("/v1/traffic");

/** Classify one image and explain every exit; with `point` null at the operating point of the service. */
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
  return parseResponse(response);
}
