// The metadata of an ONNX file, which ONNX Runtime's JavaScript interfaces do not show. An ONNX file is a protobuf
// message. Field 14 holds one entry each: a message with a key (field 1) and a value (field 2).
export function readMetadata(bytes) {
  const metadata = {};
  for (const [number, value] of fields(bytes)) {
    if (number !== 14) continue;
    const [key, text] = [...fields(value)].map(([, content]) => new TextDecoder().decode(content));
    metadata[key] = text;
  }
  return metadata;
}

function* fields(bytes) {
  let at = 0;
  const number = () => { // seven bits a byte, the lowest first; the eighth bit says that another byte follows
    let [value, factor] = [0, 1];
    for (;; factor *= 128) {
      if (at >= bytes.length) throw new Error("this is not an ONNX file, or it is damaged");
      const byte = bytes[at++];
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    const tag = number();
    const kind = tag % 8;
    const start = kind === 0 ? at : null;
    const size = kind === 0 ? (number(), 0) : kind === 2 ? number() : kind === 1 ? 8 : kind === 5 ? 4 : NaN;
    if (!(at + size <= bytes.length)) throw new Error("this is not an ONNX file, or it is damaged");
    yield [Math.floor(tag / 8), kind === 0 ? bytes.subarray(start, at) : bytes.subarray(at, at + size)];
    at += size;
  }
}
