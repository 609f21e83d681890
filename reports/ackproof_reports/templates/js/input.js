// Pointer, wheel, touch and keys on a chart. A plain wheel is left to the page: nobody should be caught while scrolling.

function listen(chart) {
  const { svg } = chart;
  const fingers = new Map();
  let from = null;
  let pinch = null;

  const timeAt = (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * chart.width;
    const [low, high] = chart.view;
    const t = low + ((x - chart.left) / (chart.right - chart.left)) * (high - low);
    return Math.max(low, Math.min(high, t));
  };

  const lens = (start, end) => {
    const [x, to] = [chart.x(Math.min(start, end)), chart.x(Math.max(start, end))];
    chart.lens.setAttribute("x", x);
    chart.lens.setAttribute("width", to - x);
    chart.lens.setAttribute("visibility", "visible");
  };

  svg.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, event);
    if (event.pointerType === "mouse" && event.button === 0) {
      from = timeAt(event);
      svg.setPointerCapture(event.pointerId);
    } else if (fingers.size === 2) {
      pinch = [...fingers.values()].map(timeAt).sort((a, b) => a - b);
    } else chart.look(timeAt(event));
  });

  svg.addEventListener("pointermove", (event) => {
    if (fingers.has(event.pointerId)) fingers.set(event.pointerId, event);
    if (pinch && fingers.size === 2) {
      const box = svg.getBoundingClientRect();
      const shares = [...fingers.values()]
        .map((finger) => (((finger.clientX - box.left) / box.width) * chart.width - chart.left) / (chart.right - chart.left))
        .sort((a, b) => a - b);
      if (shares[1] - shares[0] < 0.02) return;
      const size = (pinch[1] - pinch[0]) / (shares[1] - shares[0]);
      const start = pinch[0] - shares[0] * size;
      chart.show(start, start + size);
      return;
    }
    const t = timeAt(event);
    chart.look(t);
    if (from !== null) lens(from, t);
  });

  const end = (event) => {
    fingers.delete(event.pointerId);
    if (fingers.size < 2) pinch = null;
    if (from === null) return;
    const start = from;
    from = null;
    const t = timeAt(event);
    chart.lens.setAttribute("visibility", "hidden");
    if (event.type === "pointerup" && Math.abs(chart.x(t) - chart.x(start)) > 6) chart.show(Math.min(start, t), Math.max(start, t));
  };
  svg.addEventListener("pointerup", end);
  svg.addEventListener("pointercancel", end);
  svg.addEventListener("pointerleave", (event) => {
    if (from === null && event.pointerType === "mouse") chart.hide();
  });
  svg.addEventListener("dblclick", () => chart.show(...chart.data.home));
  svg.addEventListener("blur", () => chart.hide());

  svg.addEventListener("wheel", (event) => {
    if (event.ctrlKey) chart.zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event));
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) chart.pan(event.deltaX / 600);
    else return;
    event.preventDefault();
  }, { passive: false });

  svg.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const move = (by) => {
      const [low, high] = chart.view;
      chart.look((chart.at ?? (low + high) / 2) + by * Math.max(chart.data.width, (high - low) / 100));
      say(spoken(chart, chart.at));
    };
    const keys = {
      ArrowLeft: () => (event.shiftKey ? chart.pan(-0.25) : move(-1)),
      ArrowRight: () => (event.shiftKey ? chart.pan(0.25) : move(1)),
      "+": () => chart.zoom(0.5, chart.at ?? undefined),
      "=": () => chart.zoom(0.5, chart.at ?? undefined),
      "-": () => chart.zoom(2, chart.at ?? undefined),
      0: () => chart.show(...chart.data.home),
      Home: () => chart.show(...chart.data.full),
      Escape: () => chart.hide(),
    };
    if (!keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
  });
}

// The view as a table, for those who cannot see the picture and for copying.
const NUMBER_ROWS = 40;

function toggleNumbers(chart, control) {
  const on = !chart.numbers;
  control.setAttribute("aria-pressed", `${on}`);
  if (on) {
    chart.numbers = make("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": `Numbers of this view: ${chart.host.dataset.title}` });
    chart.host.append(chart.numbers);
    fillNumbers(chart);
  } else {
    chart.numbers.remove();
    chart.numbers = null;
  }
}

function fillNumbers(chart) {
  const track = chart.data.total && chart.track();
  if (!track) {
    chart.numbers.replaceChildren(make("p", { class: "aside" }, "No series is recorded."));
    return;
  }
  const [first, last] = chart.bins();
  const step = Math.max(1, Math.ceil((last - first + 1) / NUMBER_ROWS));
  const head = ["From", "Acknowledged per s", "Failed or indeterminate per s", "Highest p50", "Highest p99"];
  const body = make("tbody");
  for (let at = first; at <= last; at += step) {
    const end = Math.min(last + 1, at + step);
    const rate = (values) => count(values.slice(at, end).reduce((sum, n) => sum + n, 0) / ((end - at) * chart.data.width));
    const most = (values) => milliseconds(values.slice(at, end).reduce((high, n) => (n === null ? high : Math.max(high ?? 0, n)), null));
    const time = `${(chart.data.start + at * chart.data.width).toFixed(1)} s`;
    const cells = [time, rate(track.acked), rate(track.open), most(track.p50), most(track.p99)];
    body.append(make("tr", {}, ...cells.map((text, index) => make("td", { class: "num", "data-label": head[index] }, text))));
  }
  const names = make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)));
  chart.numbers.replaceChildren(make("table", { class: "plain stack" }, make("thead", {}, names), body));
}
