// Scales and ticks. A scale maps a value to a pixel; ticks are values worth a line.

function linear(low, high, from, to) {
  const slope = (to - from) / (high - low || 1);
  return (value) => from + (value - low) * slope;
}

function logarithmic(low, high, from, to) {
  const map = linear(Math.log10(low), Math.log10(high), from, to);
  return (value) => map(Math.log10(Math.max(value, low)));
}

function root(high, from, to) {
  const map = linear(0, Math.sqrt(high), from, to);
  return (value) => map(Math.sqrt(Math.max(0, value)));
}

function rootTicks(high) {
  const even = [0, 0.2, 0.45, 0.7, 1].map((share) => high * share ** 2);
  return [...new Set(even.map((value) => (value ? Number(value.toPrecision(1)) : 0)))].filter((value) => value <= high);
}

function step(span, wanted) {
  const rough = span / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
}

function ticks(low, high, wanted) {
  if (!(high > low)) return [low];
  const size = step(high - low, wanted);
  const found = [];
  for (let index = Math.ceil(low / size - 1e-9); index * size <= high + size * 1e-9; index += 1) {
    found.push(Number((index * size).toPrecision(12)));
  }
  return found;
}

function ceiling(value, wanted) {
  if (!(value > 0)) return 1;
  const size = step(value, wanted);
  return Math.max(size, Math.ceil(value / size - 1e-9) * size);
}

function decades(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    found.push(Number((10 ** power).toPrecision(6)));
  }
  return found;
}

function seconds(value, span) {
  const digits = span < 0.5 ? 3 : span < 5 ? 2 : span < 30 ? 1 : 0;
  if (value >= 600) {
    const rest = (value % 60).toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
    return `${Math.floor(value / 60)}:${rest}`;
  }
  return `${value.toFixed(digits)} s`;
}

function brief(value) {
  if (value >= 1e6) return `${fine.format(value / 1e6)} M`;
  return value >= 1e4 ? `${fine.format(value / 1e3)} k` : grouped.format(value);
}
