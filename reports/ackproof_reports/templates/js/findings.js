// The table of findings: search, one class, sorting, paging. Columns stay columns; only a page becomes rows.
// Neighbours that differ in their numbers alone are one row with a range, which opens into its members.

const PER_PAGE = 25;
const MEMBERS = 50;
const COLUMNS = [
  ["class", "Class"],
  ["place", "Partition"],
  ["offset", "Offset"],
  ["producer", "Producer"],
  ["seq", "Seq"],
  ["detail", "Detail"],
];
const NUMBERS = new Set(["offset", "producer", "seq"]);

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
    this.columns = COLUMNS.filter(([name]) => name !== "detail" || data.detail.names.some(Boolean) || data.other.some((at) => at >= 0));
    this.group();
    this.build();
    this.fill();
  }

  named(name, row) {
    const column = this.data[name];
    return column.names[column.at[row]];
  }

  place(row) {
    return `${this.named("topic", row)}/${this.data.partition[row]}`;
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
      const right = NUMBERS.has(name) ? "right" : null;
      const cell = make("th", { scope: "col", "aria-sort": "none", class: right }, button(title, `Sort by ${title}`, () => this.sort(name, cell)));
      head.append(cell);
      if (name === "offset") head.append(make("th", { scope: "col", class: "right" }, "Records"));
    });
    this.head = head;
    this.body = make("tbody");
    const table = make("table", { class: "plain rows stack" }, make("thead", {}, head), this.body);
    const scroll = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Findings: ${this.host.dataset.title}` }, table);
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
    return Math.max(1, Math.ceil(this.groups.length / PER_PAGE));
  }

  go(page) {
    this.page = Math.max(0, Math.min(this.pages - 1, page || 0));
    this.fill();
  }

  // One lower-case line per row, made at the first search: the later ones only look.
  lines() {
    if (!this.texts) {
      this.texts = this.order.map((row) => {
        const { partition, offset, producer, seq } = this.data;
        const [topic, at] = [this.named("topic", row), partition[row]];
        return `${this.named("class", row)} ${topic}/${at} ${topic} ${at} ${offset[row]} p${producer[row]} ${seq[row]} ${this.detail(row)}`.toLowerCase();
      });
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
    [...this.head.children].forEach((other) => other.hasAttribute("aria-sort") && other.setAttribute("aria-sort", "none"));
    cell.setAttribute("aria-sort", up ? "ascending" : "descending");
    this.sorted = [name, up ? 1 : -1];
    this.arrange();
    this.go(0);
  }

  rank(name) {
    if (name === "place") {
      const [topics, { partition }] = [this.rank("topic"), this.data];
      return partition.map((at, row) => topics[row] * 1e6 + at);
    }
    if (!this.data[name].names) return this.data[name];
    const { names, at } = this.data[name];
    const place = names.map((_, index) => index).sort((a, b) => (names[a] < names[b] ? -1 : names[a] > names[b] ? 1 : 0));
    const position = [];
    place.forEach((index, order) => { position[index] = order; });
    return at.map((index) => position[index]);
  }

  arrange() {
    if (this.sorted) {
      const [name, way] = this.sorted;
      const rank = this.rank(name);
      this.hits = this.hits.slice().sort((a, b) => way * (rank[a] - rank[b]) || a - b);
    }
    this.group();
  }

  // Whether a row goes on where the one before it stops: the same in words, its offset the next (unknown: its producer's).
  follows(row, before) {
    const { data } = this;
    if (["class", "topic", "detail"].some((name) => data[name].at[row] !== data[name].at[before])) return false;
    if (data.partition[row] !== data.partition[before]) return false;
    if (data.offset[row] < 0 || data.offset[before] < 0) return data.offset[row] === data.offset[before] && data.producer[row] === data.producer[before];
    if (Math.abs(data.offset[row] - data.offset[before]) > 1) return false;
    return data.other[row] < 0 ? data.other[before] < 0 : data.other[row] - data.other[before] === data.offset[row] - data.offset[before];
  }

  group() {
    this.groups = [];
    this.hits.forEach((row, at) => {
      if (at && this.follows(row, this.hits[at - 1])) this.groups[this.groups.length - 1].push(row);
      else this.groups.push([row]);
    });
  }

  // Of a duplicate, where its other copy is; of others what the audit or the replay says.
  detail(row, last = row) {
    const other = this.data.other;
    const [low, high] = [other[row], other[last]].sort((a, b) => a - b);
    if (low < 0) return this.named("detail", row);
    return `the other ${row === last ? "copy is at offset" : "copies are at offsets"} ${span(low, high)}`;
  }

  numbers(name, rows) {
    const values = rows.map((row) => this.data[name][row]);
    const [low, high] = values.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity]);
    return high < 0 ? "—" : span(low, high);
  }

  // A row of the table, for one finding or for several that follow one another.
  line(rows) {
    const [row, last] = [rows[0], rows[rows.length - 1]];
    const tell = { class: () => this.named("class", row), place: () => this.place(row), detail: () => this.detail(row, last) };
    const cells = this.columns.flatMap(([name, title]) => {
      const text = make("bdi", {}, tell[name] ? tell[name]() : this.numbers(name, rows));
      const cell = make("td", { class: NUMBERS.has(name) ? "right num" : name === "detail" ? "wide" : null, "data-label": title }, text);
      if (name !== "offset") return [cell];
      return [cell, make("td", { class: "right num", "data-label": "Records" }, count(rows.length))];
    });
    const made = make("tr", { class: rows.length > 1 ? "many" : null }, ...cells);
    const first = cells[0];
    if (rows.length > 1) first.prepend(this.opener(made, `the ${rows.length} records`, () => this.members(rows, 0)));
    else if (hasStory(this.host, this.data, row)) {
      first.prepend(this.opener(made, "the story of this record", async () => [make("tr", { class: "story" }, make("td", { colspan: `${cells.length}` }, await storyOf(this.host, this.data, row)))]));
    }
    return made;
  }

  opener(row, what, open) {
    const control = button("", `Open ${what}`, async () => {
      const shown = control.getAttribute("aria-expanded") === "true";
      control.setAttribute("aria-expanded", `${!shown}`);
      if (shown) control.opened.forEach(shut);
      else {
        control.opened = await open();
        row.after(...control.opened);
      }
    });
    control.className = "opener";
    control.setAttribute("aria-expanded", "false");
    return control;
  }

  members(rows, from) {
    const made = rows.slice(from, from + MEMBERS).map((row) => this.line([row]));
    made.forEach((row) => row.classList.add("member"));
    if (rows.length > from + MEMBERS) {
      const more = make("tr", { class: "member" }, make("td", { colspan: "9" }, button(`${count(rows.length - from - MEMBERS)} more`, `Show the next of ${count(rows.length - from - MEMBERS)} more records`, () => {
        more.opened = this.members(rows, from + MEMBERS);
        more.after(...more.opened);
        more.hidden = true;
      })));
      made.push(more);
    }
    return made;
  }

  fill() {
    const start = this.page * PER_PAGE;
    const shown = this.groups.slice(start, start + PER_PAGE);
    this.body.replaceChildren(...shown.map((rows) => this.line(rows)));
    if (!shown.length) this.body.append(make("tr", {}, make("td", { colspan: "9" }, "No finding matches.")));
    const all = this.hits.length === this.size ? "" : ` of ${count(this.size)}`;
    const found = this.groups.length === this.hits.length ? "" : ` rows, ${count(this.hits.length)} findings`;
    this.told.textContent = shown.length ? `${count(start + 1)}–${count(start + shown.length)} of ${count(this.groups.length)}${found}${all && ` found${all}`}` : `none${all}`;
    this.number.value = `${this.page + 1}`;
    this.number.max = `${this.pages}`;
    this.of.textContent = `of ${count(this.pages)}`;
    this.first.disabled = this.before.disabled = this.page === 0;
    this.last.disabled = this.after.disabled = this.page === this.pages - 1;
  }
}

function span(low, high) {
  return low === high ? count(low) : `${count(low)}–${count(high)}`;
}

// Takes away a row and what was opened below it.
function shut(row) {
  row.querySelectorAll?.(".opener").forEach((control) => (control.opened || []).forEach(shut));
  (row.opened || []).forEach(shut);
  row.remove();
}
