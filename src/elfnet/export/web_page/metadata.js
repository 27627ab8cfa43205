// Reads the metadata of an ONNX file, and verifies its hash. ONNX Runtime Web shows no metadata.
// An ONNX file is a protobuf message. Field 14 holds one entry each: a message with a key (field 1) and a value (field 2).

import { sha256 } from "./sha256.js";

const FORMAT = "1";
const HASH = "elfnet:sha256";

/**
 * Return the metadata of a verified file: every `elfnet:NAME` under NAME, parsed where it is JSON.
 * The hash detects damage. It does not prove who wrote the file.
 */
export async function verifiedMetadata(bytes, name) {
  const [texts, places] = readEntries(bytes, name);
  if (!texts.has(HASH)) throw new Error(`${name} is an ONNX file without elfnet's metadata; make one with 'elfnet export RUN --web DIR'`);
  if (texts.get(HASH) !== await hashWithout(bytes, places.get(HASH))) {
    throw new Error(`${name} is damaged or was altered (its hash does not match); copy the folder again, or export it again`);
  }
  const version = texts.get("elfnet:format_version");
  if (version !== FORMAT) throw new Error(`${name} has file format version ${version}, this page reads ${FORMAT}; export the folder again`);
  const found = {};
  for (const [key, text] of texts) {
    if (key.startsWith("elfnet:")) found[key.slice(7)] = /^[[{]/.test(text) ? JSON.parse(text) : text;
  }
  return found;
}

/** The SHA-256 of the bytes in which the 64 characters of the hash itself are replaced by `0`. */
function hashWithout(bytes, at) {
  const copy = bytes.slice();
  copy.fill(48, at, at + 64);
  return sha256(copy);
}

function readEntries(bytes, name) {
  const texts = new Map();
  const places = new Map();
  for (const [number, start, end] of fields(bytes, 0, bytes.length, name)) {
    if (number !== 14) continue;
    const [key, value] = [...fields(bytes, start, end, name)];
    if (!key || !value) throw damaged(name);
    const [keyText, valueText] = [key, value].map(([, from, to]) => new TextDecoder().decode(bytes.subarray(from, to)));
    texts.set(keyText, valueText);
    places.set(keyText, value[1]);
  }
  return [texts, places];
}

/** The fields of a message: number, and where its value starts and ends. */
function* fields(bytes, start, stop, name) {
  let at = start;
  const varint = () => { // seven bits per byte, the lowest first; the eighth bit says that another byte follows
    for (let value = 0, factor = 1; at < stop; factor *= 128) {
      const byte = bytes[at++];
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
    throw damaged(name);
  };
  while (at < stop) {
    const tag = varint();
    const kind = tag % 8;
    const from = at;
    const size = kind === 0 ? (varint(), at - from) : kind === 2 ? varint() : kind === 1 ? 8 : kind === 5 ? 4 : NaN;
    const begin = kind === 2 ? at : from;
    if (!(begin + size <= stop)) throw damaged(name);
    at = begin + size;
    yield [Math.floor(tag / 8), begin, at];
  }
}

function damaged(name) {
  return new Error(`${name} is not an ONNX file, or it is damaged; copy the folder again, or export it again`);
}
