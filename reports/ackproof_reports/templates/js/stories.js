// The story of a lost record, beside it: what `ackproof explain` tells, packed as lines that many stories share.

const TOLD = new Set(["lost", "undelivered", "skipped-by-reset"]);

function storyDocument(host) {
  return host.dataset.stories ? documentOf(host.dataset.stories) : null;
}

// Only of classes whose records are not there, or never processed: the others a reader finds at their offset.
function hasStory(host, data, row) {
  return Boolean(host.dataset.stories) && TOLD.has(data.class.names[data.class.at[row]]) && data.seq[row] >= 0;
}

async function storyOf(host, data, row) {
  const record = `${data.producer[row]}:${data.seq[row]}`;
  const { lines, of } = await storyDocument(host);
  const told = of[record];
  const command = make("p", { class: "aside" }, told ? "" : "Its story is not carried by this page. ", make("code", {}, `ackproof explain ${host.dataset.run} --record ${record}`));
  if (!told) return command;
  const items = told.map(([t, line]) => make("li", {}, make("span", { class: "num when" }, t === null ? "" : `${(t / 1000).toFixed(3)} s`), make("bdi", {}, lines[line])));
  return make("div", {}, make("ol", {}, ...items), command);
}
