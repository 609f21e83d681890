// The picture of one case: panels over one axis of time, drawn for the view and the partition that are chosen.

const MOST_ROWS = 8;
const ROWS_ON_PAPER = 4;
const PANELS = [coursePanel, ackedPanel, ackedRows, latencyPanel, tailPanel, leaderPanel, isrPanel];
const PAPER = 940;
let charts = 0;

class Chart {
  constructor(host, data) {
    this.host = host;
    this.data = data;
    this.view = [...data.home];
    this.place = -1;
    this.at = null;
    this.rooted = spiky(data);
    charts += 1;
    this.clip = `clip-${charts}`;
    this.build();
    this.draw();
    new ResizeObserver(() => {
      if (this.box.clientWidth && this.box.clientWidth !== this.width) this.draw();
    }).observe(this.box);
  }

  build() {
    const help = `${this.clip}-help`;
    this.svg = draw(null, "svg", {
      class: "picture",
      role: "group",
      tabindex: "0",
      "aria-label": `The run over time: ${this.host.dataset.title}`,
      "aria-describedby": help,
    });
    this.readout = make("div", { class: "readout", hidden: true });
    this.box = make("div", { class: "chart-box" }, this.svg, this.readout);
    const precise = "Drag over a span to look closer, double-click to go back. Keys: ← → move the line, + − zoom, Shift ← → pan, 0 resets.";
    const coarse = "Swipe sideways to read values, pinch to look closer.";
    const hint = make("p", { class: "aside chart-help", id: help }, make("span", { class: "precise" }, precise), make("span", { class: "coarse" }, coarse));
    this.host.replaceChildren(this.tools(), this.box, hint);
    listen(this);
  }

  tools() {
    const { places } = this.data;
    const select = make("select");
    if (places.length !== 1) select.append(make("option", { value: "-1" }, places.length ? places.length > MOST_ROWS ? `all ${places.length}, ${MOST_ROWS} drawn one by one` : `all ${places.length} partitions` : "none seen"));
    places.forEach((place, index) => select.append(make("option", { value: `${index}` }, place.name)));
    select.addEventListener("change", () => {
      this.place = Number(select.value);
      this.draw();
    });
    const whole = button("Whole", "Show the whole run, start-up and final read included", () => this.show(...this.data.full));
    const numbers = button("Numbers", "Show the numbers of this view as a table", () => toggleNumbers(this, numbers));
    numbers.setAttribute("aria-pressed", "false");
    const scale = button("Scale", "Linear or square-root scale of the acknowledged records", () => {
      this.rooted = !this.rooted;
      this.draw();
    });
    return make(
      "div",
      { class: "chart-tools" },
      make("label", {}, "Partition", select),
      button("◀", "Earlier", () => this.pan(-0.25)),
      button("▶", "Later", () => this.pan(0.25)),
      button("−", "Zoom out", () => this.zoom(2)),
      button("+", "Zoom in", () => this.zoom(0.5)),
      button("Reset", "Reset: back to the load and the faults", () => this.show(...this.data.home)),
      whole,
      scale,
      numbers,
    );
  }

  // What is drawn one by one: the chosen partition, or a few of all, those that lost most.
  drawn() {
    const { places } = this.data;
    if (this.place >= 0) return [places[this.place]];
    const first = [...places].sort((a, b) => b.lost - a.lost).slice(0, this.paper ? ROWS_ON_PAPER : MOST_ROWS);
    return places.filter((place) => first.includes(place));
  }

  // Whether each partition has a row of its own in a panel; of one alone a panel shows axes.
  get rows() {
    return this.place < 0 && this.data.places.length > 1;
  }

  track() {
    return this.place >= 0 ? this.data.places[this.place].track : this.data.total;
  }

  middle(bin) {
    return this.data.start + (bin + 0.5) * this.data.width;
  }

  // First and last bin that touch the view, and one more on each side so that lines reach the edges.
  bins() {
    const { start, width, total } = this.data;
    const last = total.acked.length - 1;
    const from = Math.floor((this.view[0] - start) / width) - 1;
    const to = Math.ceil((this.view[1] - start) / width) + 1;
    return [Math.min(last, Math.max(0, from)), Math.max(0, Math.min(last, to))];
  }

  span(start, end) {
    return [Math.max(this.left - 2, this.x(start)), Math.min(this.right + 2, this.x(end))];
  }

  scale() {
    return this.box.clientWidth / this.width || 1;
  }

  bands(top, height) {
    const group = draw(this.root, "g", { "clip-path": `url(#${this.clip})` });
    this.data.faults.forEach((fault) => {
      if (fault.confirmed === null) return;
      const [from, to] = this.span(fault.confirmed, fault.recovered ?? fault.failed ?? this.data.full[1]);
      if (to <= from) return;
      draw(group, "rect", { class: "band", x: from, y: top, width: Math.max(1, to - from), height });
      draw(group, "path", { class: "edge", d: `M${Math.round(from) + 0.5} ${top}v${height}`, fill: "none" });
    });
  }

  draw(width = null) {
    this.paper = width !== null;
    this.width = width || Math.max(280, this.box.clientWidth || PAPER);
    this.narrow = this.width < 560;
    this.low = this.narrow || this.paper;
    this.left = this.narrow ? 60 : 72;
    this.right = this.width - 10;
    this.x = linear(this.view[0], this.view[1], this.left, this.right);
    this.root = draw(null, "g");
    let y = 2;
    PANELS.forEach((panel) => { y = panel(this, y); });
    this.bottom = y - 6;
    this.axis(this.bottom);
    this.marks();
    const clip = draw(null, "clipPath", { id: this.clip });
    draw(clip, "rect", { x: this.left, y: 0, width: Math.max(1, this.right - this.left), height: this.bottom + 2 });
    this.hair = draw(this.root, "path", { class: "hair", d: "" });
    this.lens = draw(this.root, "rect", { class: "lens", y: 0, height: this.bottom, width: 0, visibility: "hidden" });
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.bottom + 24}`);
    this.svg.replaceChildren(clip, this.root);
    this.hide();
    if (this.numbers) fillNumbers(this);
  }

  axis(y) {
    const [from, to] = this.view;
    draw(this.root, "line", { class: "axis", x1: this.left, x2: this.right, y1: y + 0.5, y2: y + 0.5 });
    ticks(from, to, this.narrow ? 4 : 9).forEach((value) => {
      const x = this.x(value);
      draw(this.root, "line", { class: "axis", x1: x, x2: x, y1: y, y2: y + 4 });
      const anchor = x > this.right - 16 ? "end" : x < this.left + 16 ? "start" : "middle";
      draw(this.root, "text", { x, y: y + 17, "text-anchor": anchor }, seconds(value, to - from));
    });
  }

  marks() {
    this.data.marks.forEach(([t, kind, text]) => {
      if (t < this.view[0] || t > this.view[1]) return;
      const x = Math.round(this.x(t)) + 0.5;
      const group = draw(this.root, "g");
      draw(group, "title", {}, text);
      const soft = kind === "note" ? " soft" : "";
      draw(group, "path", { class: `mark${soft}`, d: `M${x} ${this.signs + 8}V${this.bottom}` });
      draw(group, "path", { class: `mark-sign${soft}`, d: `M${x - 5} ${this.signs}h10l-5 9z` });
    });
  }

  show(from, to) {
    const [low, high] = this.data.full;
    const least = Math.max(this.data.width * 4, 0.2);
    const size = Math.min(high - low, Math.max(least, to - from));
    const start = Math.min(Math.max(low, (from + to - size) / 2), high - size);
    this.view = [start, start + size];
    this.draw();
    say(`Showing ${start.toFixed(1)} to ${(start + size).toFixed(1)} seconds`);
  }

  zoom(factor, around = (this.view[0] + this.view[1]) / 2) {
    const [from, to] = this.view;
    this.show(around - (around - from) * factor, around + (to - around) * factor);
  }

  pan(share) {
    const by = (this.view[1] - this.view[0]) * share;
    const [low, high] = this.data.full;
    const held = Math.max(low - this.view[0], Math.min(high - this.view[1], by));
    this.show(this.view[0] + held, this.view[1] + held);
  }

  look(t) {
    this.at = Math.max(this.view[0], Math.min(this.view[1], t));
    showReadout(this, this.at);
  }

  hide() {
    this.at = null;
    this.readout.hidden = true;
    this.hair.setAttribute("d", "");
  }
}
