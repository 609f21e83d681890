// Drawing: elements of SVG and the paths of lines, steps and areas. Class names carry colours, never values.

const SVG = "http://www.w3.org/2000/svg";

function draw(parent, tag, attributes = {}, text = null) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  if (parent) parent.append(element);
  return element;
}

const px = (value) => Math.round(value * 10) / 10;

// Points are [x, y] or null where nothing is known: there the line breaks. A lone point becomes a dot.
function linePath(points) {
  let path = "";
  let pen = false;
  points.forEach((point, index) => {
    if (!point) {
      pen = false;
      return;
    }
    path += `${pen ? "L" : "M"}${px(point[0])} ${px(point[1])}`;
    if (!pen && !points[index + 1]) path += "h.01";
    pen = true;
  });
  return path;
}

function stepPath(points) {
  let path = "";
  points.forEach((point, index) => {
    path += index ? `H${px(point[0])}V${px(point[1])}` : `M${px(point[0])} ${px(point[1])}h.01`;
  });
  return path;
}

// The area under a line, one piece for each stretch without a break.
function areaPath(points, base) {
  return betweenPath(points, points.map((point) => point && [point[0], base]));
}

function betweenPath(upper, lower) {
  let path = "";
  for (let at = 0; at < upper.length; at += 1) {
    if (!upper[at] || !lower[at]) continue;
    let end = at;
    while (end + 1 < upper.length && upper[end + 1] && lower[end + 1]) end += 1;
    const there = upper.slice(at, end + 1);
    const back = lower.slice(at, end + 1).reverse();
    path += `M${[...there, ...back].map(([x, y]) => `${px(x)} ${px(y)}`).join("L")}Z`;
    at = end;
  }
  return path;
}

// How wide a text will be, in the page's own type (a canvas measures it without being shown).
const ruler = document.createElement("canvas").getContext("2d");
const FONT = { key: "11.5px", heading: "600 12.5px", strong: "560 11.5px" };

function wide(text, kind = "key") {
  ruler.font = `${FONT[kind]} ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

function clipped(text, room, kind = "key") {
  if (wide(text, kind) <= room) return text;
  let cut = text;
  while (cut.length > 2 && wide(`${cut}…`, kind) > room) cut = cut.slice(0, -1);
  return cut.length > 2 ? `${cut}…` : "";
}
