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

function leaderPanel(chart, top) {
  const drawn = chart.drawn().filter(({ place }) => place.seen.length);
  if (!drawn.length) return top;
  const start = heading(chart, top, "Leader (broker) of each partition", []);
  let y = start - 2;
  drawn.forEach(({ place }) => {
    chart.bands(y, 18);
    const group = draw(chart.root, "g", { "clip-path": `url(#${chart.clip})` });
    draw(chart.root, "text", { x: chart.left - 7, y: y + 13, "text-anchor": "end" }, tailOf(place.name, chart.left - 7));
    merged(place.seen, (one, other) => one[2] === other[2] && one[3] === other[3]).forEach(([from, to, leader, epoch]) => {
      const [x, end] = chart.span(from, to);
      if (end <= x) return;
      const width = Math.max(1.5, end - x - 1);
      if (leader < 0) {
        draw(group, "rect", { class: "nobody", x: x + 0.5, y: y + 1, width, height: 16 });
        if (wide("no leader") + 8 < width) draw(group, "text", { x: x + 5, y: y + 13 }, "no leader");
        return;
      }
      draw(group, "rect", { class: `lead b${chart.broker(leader)}`, x, y, width, height: 18, rx: 2 });
      const text = [`broker ${leader}, epoch ${epoch}`, `broker ${leader}`, `${leader}`].find((words) => wide(words, "strong") + 10 < width);
      if (text) draw(group, "text", { class: "lead-text", x: x + 5, y: y + 13 }, text);
    });
    y += 22;
  });
  return y + 14;
}

function isrPanel(chart, top) {
  const drawn = chart.drawn().filter(({ place }) => place.seen.length);
  if (!drawn.length) return top;
  const keys = drawn.map(({ place, k }) => ({ name: place.name, kind: `k${k}`, dash: DASHES[k] }));
  const start = heading(chart, top, "In-sync replicas", keys);
  const most = Math.max(chart.data.factor, 1);
  const height = Math.max(40, 17 * most);
  const map = linear(0, most, start + height, start + 4);
  const values = ticks(0, most, most > 4 ? 3 : most).filter(Number.isInteger);
  const group = frame(chart, start, height, values, map, (value) => `${value}`);
  drawn.forEach(({ place, k }, index) => {
    // Lines of equal value lie side by side, not on one another.
    const shift = (index - (drawn.length - 1) / 2) * 2.4;
    let path = "";
    let last = null;
    place.seen.forEach(([from, to, , , isr]) => {
      const [x, y] = [px(chart.x(from)), px(map(isr.length) + shift)];
      path += last !== null && Math.abs(from - last) < 1e-6 ? `V${y}` : `M${x} ${y}`;
      path += `H${px(chart.x(to))}`;
      last = to;
    });
    draw(group, "path", { class: `line k${k}`, d: path, "stroke-dasharray": DASHES[k] });
  });
  return start + height + 20;
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
