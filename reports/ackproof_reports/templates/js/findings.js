// The table of single findings: search, one class, sorting, paging. Columns stay columns; only a page becomes rows.

const PER_PAGE = 25;
const COLUMNS = [
  ["class", "Class"],
  ["topic", "Topic"],
  ["partition", "Partition"],
  ["offset", "Offset"],
  ["producer", "Producer"],
  ["seq", "Seq"],
  ["detail", "Detail"],
];
const NAMED = new Set(["class", "topic", "detail"]);
const UNKNOWN = new Set(["partition", "offset", "producer", "seq"]);

class Findings {
  constructor(host, data) {
    this.host = host;
    this.data = data;
    this.size = data.partition.length;
    this.order = Array.from({ length: this.size }, (_, row) => row);
    this.hits = this.order;
    this.page = 0;
    this.sorted = null;
    this.texts = null;
    this.columns = COLUMNS.filter(([name]) => name !== "detail" || data.detail.names.some(Boolean));
    this.build();
    this.fill();
  }

  value(name, row) {
    const column = this.data[name];
    return NAMED.has(name) ? column.names[column.at[row]] : column[row];
  }

  shown(name, row) {
    const value = this.value(name, row);
    if (UNKNOWN.has(name)) return value < 0 ? "—" : count(value);
    return value;
  }

  build() {
    this.search = make("input", { type: "search", placeholder: "e.g. orders 1204", autocomplete: "off", spellcheck: "false" });
    this.kind = make("select", {}, make("option", { value: "" }, "all classes"));
    this.data.class.names.forEach((name, index) => this.kind.append(make("option", { value: `${index}` }, name)));
    this.told = make("span", { class: "shown", role: "status" });
    let waiting = 0;
    this.search.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.find(), 140);
    });
    this.kind.addEventListener("change", () => this.find());
    const tools = make("div", { class: "finding-tools" }, make("label", {}, "Search", this.search), make("label", {}, "Class", this.kind), this.told);
    const head = make("tr");
    this.columns.forEach(([name, title]) => {
      const right = UNKNOWN.has(name) ? "right" : null;
      const cell = make("th", { scope: "col", "aria-sort": "none", class: right }, button(title, `Sort by ${title}`, () => this.sort(name, cell)));
      head.append(cell);
    });
    this.head = head;
    this.body = make("tbody");
    const table = make("table", { class: "plain rows" }, make("thead", {}, head), this.body);
    const scroll = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Findings" }, table);
    this.host.replaceChildren(tools, scroll, this.pager());
  }

  pager() {
    this.first = button("First", "First page", () => this.go(0));
    this.before = button("Previous", "Previous page", () => this.go(this.page - 1));
    this.after = button("Next", "Next page", () => this.go(this.page + 1));
    this.last = button("Last", "Last page", () => this.go(this.pages - 1));
    this.number = make("input", { type: "number", min: "1", value: "1" });
    this.number.addEventListener("change", () => this.go(Math.round(Number(this.number.value)) - 1));
    this.of = make("span");
    const label = make("label", {}, "Page", this.number, this.of);
    return make("div", { class: "finding-tools pager" }, this.first, this.before, label, this.after, this.last);
  }

  get pages() {
    return Math.max(1, Math.ceil(this.hits.length / PER_PAGE));
  }

  go(page) {
    this.page = Math.max(0, Math.min(this.pages - 1, page || 0));
    this.fill();
  }

  // One lower-case line per row, made at the first search: the later ones only look.
  lines() {
    if (!this.texts) {
      this.texts = this.order.slice();
      for (let row = 0; row < this.size; row += 1) {
        const value = (name) => this.value(name, row);
        const place = `${value("topic")}/${value("partition")}`;
        this.texts[row] = `${value("class")} ${place} ${value("topic")} ${value("partition")} ${value("offset")} p${value("producer")} ${value("seq")} ${value("detail")}`.toLowerCase();
      }
    }
    return this.texts;
  }

  find() {
    // Words are all to be there; "several words" in quotes stand together; 1,204 finds 1204.
    const text = this.search.value.toLowerCase().replace(/(\d),(?=\d{3})/g, "$1");
    const words = [...text.matchAll(/"([^"]+)"|[^\s"]+/g)].map((match) => match[1] ?? match[0]);
    const kind = this.kind.value === "" ? -1 : Number(this.kind.value);
    const lines = words.length ? this.lines() : null;
    const classes = this.data.class.at;
    this.hits = this.order.filter((row) => (kind < 0 || classes[row] === kind) && (!lines || words.every((word) => lines[row].includes(word))));
    this.arrange();
    this.go(0);
  }

  sort(name, cell) {
    const up = cell.getAttribute("aria-sort") !== "ascending";
    [...this.head.children].forEach((other) => other.setAttribute("aria-sort", "none"));
    cell.setAttribute("aria-sort", up ? "ascending" : "descending");
    this.sorted = [name, up ? 1 : -1];
    this.arrange();
    this.go(0);
  }

  arrange() {
    if (!this.sorted) return;
    const [name, way] = this.sorted;
    let rank = this.data[name];
    if (NAMED.has(name)) {
      const { names, at } = rank;
      const place = names.map((_, index) => index).sort((a, b) => (names[a] < names[b] ? -1 : names[a] > names[b] ? 1 : 0));
      const position = [];
      place.forEach((index, order) => { position[index] = order; });
      rank = at.map((index) => position[index]);
    }
    this.hits = this.hits.slice().sort((a, b) => way * (rank[a] - rank[b]) || a - b);
  }

  fill() {
    const start = this.page * PER_PAGE;
    const rows = this.hits.slice(start, start + PER_PAGE);
    this.body.replaceChildren(...rows.map((row) => make("tr", {}, ...this.columns.map(([name]) => make("td", { class: UNKNOWN.has(name) ? "right num" : null }, make("bdi", {}, this.shown(name, row)))))));
    if (!rows.length) this.body.append(make("tr", {}, make("td", { colspan: `${this.columns.length}` }, "No finding matches.")));
    const all = this.hits.length === this.size ? "" : ` of ${count(this.size)}`;
    this.told.textContent = rows.length ? `${count(start + 1)}–${count(start + rows.length)} of ${count(this.hits.length)}${all && ` found${all}`}` : `none${all}`;
    this.number.value = `${this.page + 1}`;
    this.number.max = `${this.pages}`;
    this.of.textContent = `of ${count(this.pages)}`;
    this.first.disabled = this.before.disabled = this.page === 0;
    this.last.disabled = this.after.disabled = this.page === this.pages - 1;
  }
}
