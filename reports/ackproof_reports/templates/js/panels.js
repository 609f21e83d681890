// Panels of numbers over time: acknowledged records, latency, the unreplicated tail.
// Each takes the chart and its upper edge, draws itself, and returns its lower edge.

function heading(chart, top, text, keys) {
  draw(chart.root, "text", { class: "heading", x: 0, y: top + 12 }, clipped(text, chart.width, "heading"));
  let x = wide(text, "heading") + 22;
  let y = top + 12;
  keys.forEach(({ name, kind, dash }) => {
    const room = wide(name) + 38;
    if (x + room > chart.width) {
      x = 0;
      y += 17;
    }
    draw(chart.root, "line", { class: `line ${kind}`, x1: x, x2: x + 16, y1: y - 4, y2: y - 4, "stroke-dasharray": dash || "none" });
    draw(chart.root, "text", { class: "key", x: x + 21, y }, clipped(name, chart.width - x - 21));
    x += room;
  });
  return y + 13;
}

function frame(chart, top, height, values, map, label) {
  const group = draw(chart.root, "g");
  values.forEach((value) => {
    const y = Math.round(map(value)) + 0.5;
    if (y < top - 1 || y > top + height + 1) return;
    draw(group, "line", { class: "grid", x1: chart.left, x2: chart.right, y1: y, y2: y });
    draw(group, "text", { x: chart.left - 7, y: y + 4, "text-anchor": "end" }, label(value));
  });
  chart.bands(top, height);
  return draw(chart.root, "g", { "clip-path": `url(#${chart.clip})` });
}

function samplesOf(chart, values, map) {
  const [first, last] = chart.bins();
  const points = [];
  for (let at = first; at <= last; at += 1) {
    points.push(values[at] === null ? null : [chart.x(chart.middle(at)), map(values[at])]);
  }
  return points;
}

function seen(chart, values) {
  const [first, last] = chart.bins();
  return values.slice(first, last + 1).filter((value) => value !== null);
}

// Only what rises from nothing, with its feet: a line along zero would say nothing for the whole run.
function spikes(values) {
  return values.map((value, at) => (value || values[at - 1] || values[at + 1] ? value : null));
}

function ackedPanel(chart, top) {
  const { data } = chart;
  const main = chart.track();
  if (!main) return top;
  const per = (value) => value / data.width;
  const name = chart.rows ? "all partitions" : data.places[Math.max(0, chart.place)]?.name ?? "all partitions";
  const keys = [{ name, kind: "total" }];
  const open = main.open.some((value) => value > 0);
  const read = main.read.some((value) => value > 0);
  if (read) keys.push({ name: "read live", kind: "read", dash: "5 3" });
  if (open) keys.push({ name: "failed or indeterminate", kind: "open", dash: "2 3" });
  const title = chart.narrow ? "Acknowledged per second" : "Acknowledged records per second";
  const start = heading(chart, top, `${title}${chart.rooted ? (chart.narrow ? ", root scale" : ", square-root scale") : ""}`, keys);
  const height = chart.low ? 120 : 160;
  const tracks = [main.acked, ...(open ? [main.open] : []), ...(read ? [main.read] : [])];
  const highest = ceiling(Math.max(0, ...tracks.flatMap((values) => seen(chart, values).map(per))), 4);
  const map = chart.rooted ? root(highest, start + height, start) : linear(0, highest, start + height, start);
  const value = (n) => map(per(n));
  const values = chart.rooted ? rootTicks(highest) : ticks(0, highest, 4);
  const group = frame(chart, start, height, values.filter(Number.isInteger), map, brief);
  const line = (values, kind, dash) =>
    draw(group, "path", { class: `line ${kind}`, d: linePath(samplesOf(chart, values, value)), "stroke-dasharray": dash || "none", "stroke-linecap": "round" });
  draw(group, "path", { class: "area kt fill", d: areaPath(samplesOf(chart, main.acked, value), start + height) });
  if (read) line(main.read, "read", "5 3");
  if (open) line(spikes(main.open), "open", "2 3");
  line(main.acked, "total");
  return start + height + 20;
}

// A row for each partition, all on one scale: the name beside it, what is drawn by `fill(group, place, lower edge)`.
const ROW = 22;

function rowsOf(chart, top, title, places, fill) {
  let y = heading(chart, top, title, []) - 2;
  places.forEach((place) => {
    chart.bands(y, ROW - 4);
    draw(chart.root, "text", { x: chart.left - 7, y: y + 13, "text-anchor": "end" }, tailOf(place.name, chart.left - 7));
    draw(chart.root, "line", { class: "grid", x1: chart.left, x2: chart.right, y1: y + ROW - 3.5, y2: y + ROW - 3.5 });
    fill(draw(chart.root, "g", { "clip-path": `url(#${chart.clip})` }), place, y + ROW - 4);
    y += ROW;
  });
  return y + 14;
}

function ackedRows(chart, top) {
  const places = chart.drawn().filter((place) => place.track);
  if (!chart.rows || !places.length) return top;
  const highest = Math.max(1, ...places.flatMap((place) => seen(chart, place.track.acked)));
  const most = `to ${brief(highest / chart.data.width)} per second${chart.rooted ? ", root scale" : ""}`;
  return rowsOf(chart, top, `Each partition, ${most}`, places, (group, { track }, low) => {
    const map = chart.rooted ? root(highest, low, low - ROW + 5) : linear(0, highest, low, low - ROW + 5);
    const points = samplesOf(chart, track.acked, map);
    draw(group, "path", { class: "area kt fill", d: areaPath(points, low) });
    draw(group, "path", { class: "line thin total", d: linePath(points) });
  });
}

function latencyPanel(chart, top) {
  const main = chart.track();
  if (!chart.data.total || !main || !main.p99.some((value) => value !== null)) return top;
  const alone = chart.place >= 0 || chart.data.places.length === 1;
  const keys = [
    { name: alone ? "p50" : "p50 (over partitions, by acks)", kind: "k0" },
    { name: alone ? "p99" : "p99 (worst partition)", kind: "k1", dash: "4 2" },
  ];
  const start = heading(chart, top, "Latency of acks", keys);
  const height = chart.low ? 84 : 110;
  const values = [...seen(chart, main.p50), ...seen(chart, main.p99)].filter((value) => value > 0);
  const low = Math.max(0.01, Math.min(1, ...values));
  const high = Math.max(low * 10, ...values);
  const marks = decades(low, high);
  const map = logarithmic(marks[0], marks[marks.length - 1], start + height, start);
  const group = frame(chart, start, height, marks, map, milliseconds);
  const upper = samplesOf(chart, main.p99, map);
  const lower = samplesOf(chart, main.p50, map);
  draw(group, "path", { class: "between k0 fill", d: betweenPath(upper, lower) });
  draw(group, "path", { class: "line k1", d: linePath(upper), "stroke-dasharray": "4 2", "stroke-linecap": "round" });
  draw(group, "path", { class: "line k0", d: linePath(lower), "stroke-linecap": "round" });
  return start + height + 20;
}

// Stretches in which somebody looked: while no leader answers, nothing is known of its tail (a negative number), and
// nothing is drawn.
function known(points) {
  const stretches = [[]];
  points.forEach((point) => {
    if (point[1] < 0) stretches.push([]);
    else stretches[stretches.length - 1].push(point);
  });
  return stretches.filter((stretch) => stretch.length);
}

// A backlog that is acknowledged at once towers over everything: then roots tell more than a flat line.
function spiky(data) {
  const rates = (data.total ? data.total.acked : []).filter(Boolean).sort((a, b) => a - b);
  return rates.length > 10 && rates[rates.length - 1] > 6 * rates[Math.floor(rates.length / 2)];
}

function tailPanel(chart, top) {
  const places = chart.drawn().filter((place) => place.tail.length);
  if (!places.length) return top;
  const inside = (place) => place.tail.filter(([t]) => t >= chart.view[0] && t <= chart.view[1]).map(([, n]) => n);
  const highest = Math.max(0, ...places.flatMap(inside));
  const title = chart.narrow ? "Unreplicated tail" : "Unreplicated tail: leader's log end − high watermark, records";
  const line = (group, place, map) => known(place.tail).forEach((stretch) => {
    const points = stretch.map(([t, n]) => [chart.x(t), map(n)]);
    draw(group, "path", { class: "line k0", d: stepPath(points), "stroke-linecap": "round" });
  });
  if (chart.rows) {
    return rowsOf(chart, top, `${title}, to ${brief(highest)}`, places, (group, place, low) => line(group, place, linear(0, Math.max(1, highest), low, low - ROW + 6)));
  }
  const start = heading(chart, top, title, []);
  const height = chart.low ? 60 : 84;
  const round = ceiling(highest, 3);
  const map = linear(0, round, start + height, start);
  line(frame(chart, start, height, ticks(0, round, 3).filter(Number.isInteger), map, brief), places[0], map);
  return start + height + 20;
}
