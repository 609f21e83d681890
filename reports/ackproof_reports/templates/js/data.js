// Small helpers: elements, numbers, and the documents that the page carries. Text is only ever set as text.

const $ = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function button(label, title, act) {
  const element = make("button", { type: "button", "aria-label": title, title }, label);
  element.addEventListener("click", act);
  return element;
}

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

function count(value) {
  return value === null || value === undefined ? "—" : grouped.format(value);
}

function milliseconds(value) {
  if (value === null || value === undefined) return "—";
  return value >= 1000 ? `${fine.format(value / 1000)} s` : `${fine.format(value)} ms`;
}

function say(text) {
  $("said").textContent = text;
}

// A small document is there at once; a large one is unpacked when it is asked for (and then only once).
const unpacked = new Map();

function documentNow(id) {
  const block = $(id);
  if (!block || block.type !== "application/json") return null;
  if (!unpacked.has(id)) unpacked.set(id, JSON.parse(block.textContent));
  return unpacked.get(id);
}

async function documentOf(id) {
  const now = documentNow(id) || unpacked.get(id);
  if (now) return now;
  if (typeof DecompressionStream === "undefined") throw new Error("this browser cannot unpack the data");
  const text = atob($(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  unpacked.set(id, JSON.parse(await new Response(stream).text()));
  return unpacked.get(id);
}
