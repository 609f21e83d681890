// The page itself: theme, copying, opening cases, drawing what comes into view, paper.

const THEMES = ["auto", "light", "dark"];

function applyTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  $("theme-now").textContent = name;
}

function remembered() {
  // A page opened from a file may be denied storage; then the choice lasts as long as the page.
  try {
    return localStorage.getItem("ackproof-theme") || "auto";
  } catch {
    return "auto";
  }
}

function setUpTheme() {
  let now = remembered();
  if (!THEMES.includes(now)) now = "auto";
  applyTheme(now);
  $("theme").hidden = false;
  $("theme").addEventListener("click", () => {
    now = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
    applyTheme(now);
    say(`Theme: ${now}`);
    try {
      localStorage.setItem("ackproof-theme", now);
    } catch {
      return;
    }
  });
}

async function copy(control) {
  const code = control.parentElement.querySelector("code");
  let done = false;
  try {
    await navigator.clipboard.writeText(code.textContent);
    done = true;
  } catch {
    // Without a clipboard (a file, no permission) the text is at least selected.
    const range = document.createRange();
    range.selectNodeContents(code);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    try {
      done = document.execCommand("copy");
    } catch {
      done = false;
    }
  }
  const label = control.querySelector("span");
  label.textContent = done ? "Copied" : "Selected";
  say(done ? "Copied" : "Selected, copy it with your keyboard");
  setTimeout(() => { label.textContent = "Copy"; }, 1800);
}

const drawnCharts = new Map();

function drawChart(host) {
  if (drawnCharts.has(host)) return;
  drawnCharts.set(host, new Chart(host, documentNow(host.dataset.chart)));
}

const listed = new Set();

function listFindings(host, wait = true) {
  if (listed.has(host)) return;
  const now = documentNow(host.dataset.findings);
  if (now) {
    listed.add(host);
    new Findings(host, now);
  } else if (wait) {
    listed.add(host);
    documentOf(host.dataset.findings).then((data) => new Findings(host, data), (error) => {
      host.replaceChildren(make("p", { class: "callout warn" }, `The findings cannot be shown: ${error.message}. They are in the Parquet files next to this page.`));
    });
  }
}

function setUpLazily() {
  const watcher = new IntersectionObserver((entries) => {
    entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
      watcher.unobserve(target);
      if (target.dataset.chart) drawChart(target);
      else listFindings(target);
    });
  }, { rootMargin: "400px 0px" });
  document.querySelectorAll("[data-chart], [data-findings]").forEach((host) => watcher.observe(host));
}

function openTarget() {
  const id = decodeURIComponent(location.hash.slice(1));
  let target = id && $(id);
  if (!target) return;
  const first = target;
  for (; target; target = target.parentElement) {
    if (target.tagName === "DETAILS") target.open = true;
  }
  first.scrollIntoView();
}

function setUpCases() {
  const cases = [...document.querySelectorAll("details.case")];
  const all = (id, open) => $(id)?.addEventListener("click", () => cases.forEach((one) => { one.open = open; }));
  all("open-all", true);
  all("close-all", false);
  addEventListener("hashchange", openTarget);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#case-']");
    if (link && link.hash === location.hash) openTarget();
  });
}

function setUpPaper() {
  let shut = [];
  addEventListener("beforeprint", () => {
    shut = [...document.querySelectorAll("details:not([open])")];
    shut.forEach((one) => { one.open = true; });
    document.querySelectorAll("[data-findings]").forEach((host) => listFindings(host, false));
    document.querySelectorAll("[data-chart]").forEach((host) => {
      drawChart(host);
      drawnCharts.get(host).draw(PAPER);
    });
  });
  addEventListener("afterprint", () => {
    shut.forEach((one) => { one.open = false; });
    drawnCharts.forEach((chart) => chart.draw());
  });
}

setUpTheme();
document.querySelectorAll("[data-needs-script]").forEach((element) => { element.hidden = false; });
document.querySelectorAll("button.copy").forEach((control) => control.addEventListener("click", () => copy(control)));
setUpCases();
setUpLazily();
setUpPaper();
openTarget();
