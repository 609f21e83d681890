// Panels of states over time: phases and faults, who leads, how many replicas are in sync.

function coursePanel(chart, top) {
  const { data } = chart;
  let y = top;
  if (data.phases.length) {
    const group = draw(chart.root, "g", { "clip-path": `url(#${chart.clip})` });
    draw(chart.root, "text", { x: chart.left - 7, y: y + 13, "text-anchor": "end" }, chart.narrow ? "" : "phase");
    data.phases.forEach(([start, end, name], index) => {
      const [from, to] = chart.span(start, end);
      if (to <= from) return;
      draw(group, "rect", { class: `phase${index % 2 ? " odd" : ""}`, x: from, y, width: Math.max(1, to - from - 1), height: 18 });
      const text = clipped(name, to - from - 8);
      if (text) draw(group, "text", { x: from + 5, y: y + 13 }, text);
    });
    y += 25;
  }
  data.faults.forEach((fault) => {
    faultLane(chart, fault, y);
    y += 23;
  });
  if (data.marks.length) {
    markLane(chart, y);
    y += 23;
  }
  return y === top ? top : y + 10;
}

// Deaths, errors and resets: a sign each, and its words where there is room for them.
function markLane(chart, y) {
  draw(chart.root, "text", { x: chart.left - 7, y: y + 13, "text-anchor": "end" }, chart.narrow ? "" : "marks");
  chart.signs = y + 3;
  const inside = chart.data.marks.filter(([t]) => t >= chart.view[0] && t <= chart.view[1]);
  inside.forEach(([t, , text], index) => {
    const x = chart.x(t);
    const next = index + 1 < inside.length ? chart.x(inside[index + 1][0]) - 6 : chart.right;
    const words = clipped(text, next - x - 12);
    if (words && next - x > 60) draw(chart.root, "text", { x: x + 9, y: y + 13 }, words);
  });
}

function faultLane(chart, fault, y) {
  const end = chart.data.full[1];
  const group = draw(chart.root, "g", { "clip-path": `url(#${chart.clip})` });
  draw(chart.root, "text", { x: chart.left - 7, y: y + 13, "text-anchor": "end" }, chart.narrow ? fault.name : `fault ${fault.name}`);
  const asked = fault.asked ?? fault.failed;
  if (asked === null) return;
  const bite = fault.confirmed ?? fault.failed ?? end;
  const over = fault.recovered ?? fault.failed ?? end;
  const [from, to] = chart.span(asked, Math.max(over, bite));
  if (fault.asked !== null) draw(group, "rect", { class: "asked", x: from + 0.5, y: y + 0.5, width: Math.max(2, to - from), height: 17 });
  if (fault.confirmed !== null) {
    const [begin, stop] = chart.span(fault.confirmed, fault.healed ?? over);
    draw(group, "rect", { class: "span", x: begin, y, width: Math.max(2, stop - begin), height: 18 });
  }
  if (fault.failed !== null) {
    const x = chart.x(fault.failed);
    draw(group, "path", { class: "failed", d: `M${x - 5} ${y + 4}l10 10m0-10l-10 10` });
  }
  const label = `${fault.title}${fault.nodes ? ` · ${fault.nodes}` : ""}${fault.failed === null ? "" : fault.missed ? " · missed" : " · failed"}`;
  const room = wide(label, "strong") + 14;
  if (to - from > room) draw(group, "text", { class: "span-text", x: from + 6, y: y + 13 }, label);
  else if (chart.right - to > room) draw(group, "text", { class: "span-text", x: to + 7, y: y + 13 }, label);
  else if (from - chart.left > room) draw(group, "text", { class: "span-text", x: from - 7, y: y + 13, "text-anchor": "end" }, label);
  else draw(group, "text", { class: "span-text", x: from + 6, y: y + 13 }, clipped(label, chart.right - from - 8, "strong"));
}

// A stretch of a strip with the longest of these words that fits into it.
function stretchOf(chart, group, y, from, to, kind, words) {
  const [x, end] = chart.span(from, to);
  if (end <= x) return;
  const width = Math.max(1.5, end - x - 1);
  draw(group, "rect", { class: kind, x, y, width, height: ROW - 4, rx: 2 });
  const text = words.find((one) => wide(one, "strong") + 10 < width);
  if (text) draw(group, "text", { class: "lead-text", x: x + 5, y: y + 13 }, text);
}

function leaderPanel(chart, top) {
  const places = chart.drawn().filter((place) => place.seen.length);
  if (!places.length) return top;
  return rowsOf(chart, top, `Leader (broker)${chart.rows ? " of each partition" : ""}`, places, (group, place, low) => {
    merged(place.seen, (one, other) => one[2] === other[2] && one[3] === other[3]).forEach(([from, to, leader, epoch]) => {
      const words = leader < 0 ? ["no leader"] : [`broker ${leader}, epoch ${epoch}`, `broker ${leader}`, `${leader}`];
      stretchOf(chart, group, low - ROW + 4, from, to, leader < 0 ? "nobody" : `lead b${leader % 8}`, words);
    });
  });
}

// How many replicas are in sync is a whole number, so it is written; what is fewer than all stands out.
function isrPanel(chart, top) {
  const places = chart.drawn().filter((place) => place.seen.length);
  if (!places.length) return top;
  return rowsOf(chart, top, chart.narrow ? "In-sync replicas" : "In-sync replicas: how many, and which brokers", places, (group, place, low) => {
    merged(place.seen, (one, other) => `${one[4]}` === `${other[4]}`).forEach(([from, to, , , isr]) => {
      const kind = isr.length >= place.replicas ? "isr" : `isr fewer${isr.length < 2 ? " alone" : ""}`;
      stretchOf(chart, group, low - ROW + 4, from, to, kind, [`${isr.length}: brokers ${isr.join(" ")}`, `${isr.length}: ${isr.join(" ")}`, `${isr.length}`]);
    });
  });
}

function merged(stretches, same) {
  const out = [];
  stretches.forEach((stretch) => {
    const last = out[out.length - 1];
    if (last && same(last, stretch) && Math.abs(last[1] - stretch[0]) < 1e-6) last[1] = stretch[1];
    else out.push([...stretch]);
  });
  return out;
}

function tailOf(name, room) {
  if (wide(name) <= room) return name;
  let cut = name;
  while (cut.length > 2 && wide(`…${cut}`) > room) cut = cut.slice(1);
  return `…${cut}`;
}
