// A stage without the head behind it, cut out of the same file. ONNX Runtime computes every node of a graph, also those
// that nobody asked for. The file has the stage first and the head behind it, and says where each begins.
export function stageAlone(model) {
  const key = "elfnet.stage";
  const found = model.lastIndexOf(key);
  if (found < 0) throw new Error("the graph does not say where its head begins; export it again");
  const at = found + key.length; // then come a tag, the length of a text, and the text
  const [header, start, end] = model.toString("latin1", at + 2, at + 2 + model[at + 1]).split(" ").map(Number);
  const length = []; // as protobuf writes it: seven bits a byte, the lowest first, the eighth says that more follow
  for (let rest = end - start; rest > 0; rest = Math.floor(rest / 128)) length.push((rest % 128) + (rest > 127 ? 128 : 0));
  return Buffer.concat([model.subarray(0, header), Buffer.from([0x3a, ...length]), model.subarray(start, end)]);
}
