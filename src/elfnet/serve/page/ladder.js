// The operating points that the slider can take: the efficient ones, each more accurate than all cheaper ones.

/** Return the efficient points by rising cost, and the service's point even if it is not efficient. */
export function ladder(points, own) {
  const byCost = [...points].sort(
    (a, b) => a.expected.mean_cost - b.expected.mean_cost || b.expected.balanced_accuracy - a.expected.balanced_accuracy,
  );
  let best = -Infinity;
  const rungs = byCost.filter((point) => {
    const better = point.expected.balanced_accuracy > best + 1e-9;
    if (better) best = point.expected.balanced_accuracy;
    return better;
  });
  const mine = points.find((point) => point.name === own);
  const same = rungs.findIndex((point) => alike(point, mine));
  if (same >= 0) rungs[same] = mine;
  else rungs.push(mine);
  return rungs.sort((a, b) => a.expected.mean_cost - b.expected.mean_cost);
}

function alike(a, b) {
  return (
    Math.abs(a.expected.mean_cost - b.expected.mean_cost) < 1e-9 &&
    Math.abs(a.expected.balanced_accuracy - b.expected.balanced_accuracy) < 1e-9
  );
}
