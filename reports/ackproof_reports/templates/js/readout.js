// What the picture says at one moment: as a small box beside the pointer, and as words for a screen reader.

function stretchAt(place, t) {
  return place.seen.find(([from, to]) => t >= from && t <= to) || null;
}

function tailAt(place, t) {
  let found = null;
  for (const [at, n] of place.tail) {
    if (at > t) break;
    if (t - at < 1.5) found = n;
  }
  return found;
}

function inForce(data, t) {
  return data.faults
    .filter((fault) => (fault.asked ?? Infinity) <= t && t <= (fault.recovered ?? fault.failed ?? data.full[1]))
    .map((fault) => {
      if (fault.confirmed === null || t < fault.confirmed) return `${fault.title}: asked for`;
      return fault.healed !== null && t >= fault.healed ? `${fault.title}: healing` : `${fault.title}: in force`;
    });
}

function rowsAt(chart, t) {
  const { data } = chart;
  const bin = Math.floor((t - data.start) / data.width);
  const within = data.total && bin >= 0 && bin < data.total.acked.length;
  const track = chart.track();
  const rows = [];
  if (within && track) {
    rows.push(["kt", "acknowledged per s", count(track.acked[bin] / data.width)]);
    if (track.read.some(Boolean)) rows.push([null, "read live per s", count(track.read[bin] / data.width)]);
    if (track.open[bin]) rows.push([null, "failed or indeterminate per s", count(track.open[bin] / data.width)]);
    rows.push(["k0", "p50", milliseconds(track.p50[bin])], ["k1", "p99", milliseconds(track.p99[bin])]);
  }
  chart.drawn().forEach(({ place, k }) => {
    const stretch = stretchAt(place, t);
    const tail = tailAt(place, t);
    const parts = [];
    if (within && place.track && chart.place < 0) parts.push(`${count(place.track.acked[bin] / data.width)}/s`);
    if (stretch) parts.push(stretch[2] < 0 ? "no leader" : `leader ${stretch[2]}`, `ISR ${stretch[4].join(" ") || "none"}`);
    if (tail !== null) parts.push(`tail ${count(tail)}`);
    if (parts.length) rows.push([`k${k}`, place.name, parts.join(" · ")]);
  });
  return rows;
}

function showReadout(chart, t) {
  const { readout, data } = chart;
  readout.replaceChildren(make("p", { class: "at" }, `${t.toFixed(data.width < 1 ? 1 : 0)} s after the start`));
  const list = make("dl");
  rowsAt(chart, t).forEach(([kind, name, value]) => {
    list.append(make("dt", {}, kind ? make("i", { class: kind }) : null, name), make("dd", {}, value));
  });
  readout.append(list);
  inForce(data, t).forEach((text) => readout.append(make("p", { class: "in-force" }, text)));
  data.marks
    .filter(([at]) => Math.abs(at - t) < (chart.view[1] - chart.view[0]) / 80)
    .slice(0, 3)
    .forEach(([, , text]) => readout.append(make("p", { class: "in-force" }, text)));
  readout.hidden = false;
  const x = chart.x(t) * chart.scale();
  const room = chart.box.clientWidth;
  const side = x > room / 2 ? x - readout.offsetWidth - 14 : x + 14;
  readout.style.left = `${Math.max(0, Math.min(side, room - readout.offsetWidth))}px`;
  readout.style.top = "8px";
  chart.hair.setAttribute("d", `M${Math.round(chart.x(t)) + 0.5} 0V${chart.bottom}`);
}

function spoken(chart, t) {
  const rows = rowsAt(chart, t).map(([, name, value]) => `${name} ${value}`);
  return [`${t.toFixed(1)} seconds`, ...inForce(chart.data, t), ...rows].join("; ");
}
