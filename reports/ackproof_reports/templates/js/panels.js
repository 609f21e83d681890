// Panels of numbers over time: acknowledged records, latency, the unreplicated tail.
// Each takes the chart and its upper edge, draws itself, and returns its lower edge.

const DASHES = ["none", "7 2", "2 2", "9 2 2 2", "5 4", "1 2", "12 3", "3 3"];

function heading(chart, top, text, keys) {
  draw(chart.root, "text", { class: "heading", x: 0, y: top + 12 }, text);
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
  const alone = chart.place >= 0;
  const others = alone ? [] : chart.drawn().filter(({ place }) => place.track);
  const name = alone ? data.places[chart.place].name : data.places.length === 1 ? data.places[0].name : "all partitions";
  const keys = [{ name, kind: "total" }];
  if (others.length > 1) others.forEach(({ place, k }) => keys.push({ name: place.name, kind: `k${k}`, dash: DASHES[k] }));
  const open = main.open.some((value) => value > 0);
  const read = main.read.some((value) => value > 0);
  if (read) keys.push({ name: "read live", kind: "read", dash: "5 3" });
  if (open) keys.push({ name: "failed or indeterminate", kind: "open", dash: "2 3" });
  const title = `Acknowledged records per second${chart.rooted ? ", square-root scale" : ""}`;
  const start = heading(chart, top, title, keys);
  const height = chart.low ? 120 : 160;
  const tracks = [main.acked, ...(open ? [main.open] : []), ...(read ? [main.read] : [])];
  const highest = ceiling(Math.max(0, ...tracks.flatMap((values) => seen(chart, values).map(per))), 4);
  const map = chart.rooted ? root(highest, start + height, start) : linear(0, highest, start + height, start);
  const value = (n) => map(per(n));
  const values = chart.rooted ? rootTicks(highest) : ticks(0, highest, 4);
  const group = frame(chart, start, height, values, map, brief);
  const line = (values, kind, dash) =>
    draw(group, "path", { class: `line ${kind}`, d: linePath(samplesOf(chart, values, value)), "stroke-dasharray": dash || "none", "stroke-linecap": "round" });
  draw(group, "path", { class: "area kt fill", d: areaPath(samplesOf(chart, main.acked, value), start + height) });
  if (read) line(main.read, "read", "5 3");
  if (others.length > 1) others.forEach(({ place, k }) => line(place.track.acked, `thin k${k}`, DASHES[k]));
  if (open) line(spikes(main.open), "open", "2 3");
  line(main.acked, "total");
  return start + height + 20;
}

function latencyPanel(chart, top) {
  const main = chart.track();
  if (!main || !main.p99.some((value) => value !== null)) return top;
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

// Stretches in which somebody looked: while no leader answers, nothing is known of its tail, and nothing is drawn.
function known(points) {
  const usual = points.length > 1 ? (points[points.length - 1][0] - points[0][0]) / points.length : 0;
  const longest = Math.max(1.5, 4 * usual);
  const stretches = [];
  points.forEach((point, at) => {
    if (!at || point[0] - points[at - 1][0] > longest) stretches.push([]);
    stretches[stretches.length - 1].push(point);
  });
  return stretches;
}

// A backlog that is acknowledged at once towers over everything: then roots tell more than a flat line.
function spiky(data) {
  const rates = (data.total ? data.total.acked : []).filter(Boolean).sort((a, b) => a - b);
  return rates.length > 10 && rates[rates.length - 1] > 6 * rates[Math.floor(rates.length / 2)];
}

function tailPanel(chart, top) {
  const drawn = chart.drawn().filter(({ place }) => place.tail.length);
  if (!drawn.length) return top;
  const keys = drawn.map(({ place, k }) => ({ name: place.name, kind: `k${k}`, dash: DASHES[k] }));
  const start = heading(chart, top, chart.narrow ? "Unreplicated tail" : "Unreplicated tail: leader's log end − high watermark, records", keys);
  const height = chart.low ? 60 : 84;
  const inside = (place) => place.tail.filter(([t]) => t >= chart.view[0] && t <= chart.view[1]).map(([, n]) => n);
  const highest = ceiling(Math.max(0, ...drawn.flatMap(({ place }) => inside(place))), 3);
  const map = linear(0, highest, start + height, start);
  const group = frame(chart, start, height, ticks(0, highest, 3), map, brief);
  drawn.forEach(({ place, k }) => {
    known(place.tail).forEach((stretch) => {
      const points = stretch.map(([t, n]) => [chart.x(t), map(n)]);
      draw(group, "path", { class: `line k${k}`, d: stepPath(points), "stroke-dasharray": DASHES[k], "stroke-linecap": "round" });
    });
  });
  return start + height + 20;
}
