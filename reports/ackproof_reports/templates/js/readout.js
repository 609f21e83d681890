// What the picture says at one moment: as a small box beside the pointer, and as words for a screen reader.

function stretchAt(place, t) {
  return place.seen.find(([from, to]) => t >= from && t <= to) || null;
}

function tailAt(place, t) {
  const next = place.tail.findIndex(([at]) => at > t);
  const last = place.tail[(next < 0 ? place.tail.length : next) - 1];
  if (!last || last[1] < 0 || (next < 0 && t - last[0] >= 1.5)) return null;
  return last[1];
}

function inForce(data, t) {
  return data.faults
    .filter((fault) => (fault.asked ?? Infinity) <= t && t <= (fault.recovered ?? fault.failed ?? data.full[1]))
    .map((fault) => {
      if (fault.confirmed === null || t < fault.confirmed) return `${fault.title}: asked for`;
      return fault.healed !== null && t >= fault.healed ? `${fault.title}: healing` : `${fault.title}: in force`;
    });
}

// What holds for the chosen partition, or for all together.
function totalsAt(chart, t) {
  const { data } = chart;
  const track = chart.track();
  const bin = Math.floor((t - data.start) / data.width);
  if (!data.total || !track || bin < 0 || bin >= track.acked.length) return [];
  const rate = (values) => count(values[bin] / data.width);
  const rows = [["kt", "acknowledged per s", rate(track.acked)]];
  if (track.read.some(Boolean)) rows.push(["kr", "read live per s", rate(track.read)]);
  if (track.open[bin]) rows.push(["kf", "failed or indeterminate per s", rate(track.open)]);
  rows.push(["k0", "p50", milliseconds(track.p50[bin])], ["k1", "p99", milliseconds(track.p99[bin])]);
  return rows;
}

// One row per partition that is drawn: acks, leader, ISR, tail.
function placesAt(chart, t) {
  const { data } = chart;
  const bin = Math.floor((t - data.start) / data.width);
  return chart.drawn().map((place) => {
    const acked = place.track && bin >= 0 ? place.track.acked[bin] : undefined;
    const stretch = stretchAt(place, t);
    const leader = !stretch ? "—" : stretch[2] < 0 ? "none" : `${stretch[2]}`;
    const isr = stretch ? stretch[4].join(" ") || "none" : "—";
    return [place.name, acked === undefined ? "—" : count(acked / data.width), leader, isr, count(tailAt(place, t))];
  });
}

function showReadout(chart, t) {
  const { readout, data } = chart;
  readout.replaceChildren(make("p", { class: "at" }, `${t.toFixed(data.width < 1 ? 1 : 0)} s after the start`));
  const list = make("dl");
  totalsAt(chart, t).forEach(([kind, name, value]) => {
    list.append(make("dt", {}, make("i", { class: kind }), name), make("dd", {}, value));
  });
  const head = make("tr", {}, ...["", "acks/s", "leader", "ISR", "tail"].map((name) => make("th", {}, name)));
  const rows = placesAt(chart, t).map(([name, ...rest]) => {
    return make("tr", {}, make("th", {}, name), ...rest.map((text) => make("td", {}, text)));
  });
  readout.append(list, make("table", {}, head, ...rows));
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
  const totals = totalsAt(chart, t).map(([, name, value]) => `${name} ${value}`);
  const places = placesAt(chart, t).map(([name, , leader, isr, tail]) => `${name}: leader ${leader}, in sync ${isr}, tail ${tail}`);
  return [`${t.toFixed(1)} seconds`, ...inForce(chart.data, t), ...totals, ...places].join("; ");
}
