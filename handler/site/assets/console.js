// The console: what every page has, and which script a page needs besides.

import { copying, find } from "./dom.js";
import { Live, remember } from "./live.js";
import { address, ask, errorIn, keep, key, pageAt } from "./network.js";

// Shows the page at this address, with the key, in place of the one that asked for it.
async function enter() {
  const { ok, page } = await pageAt(location.href).catch(() => ({}));
  if (!ok) {
    const why = page ? find("#why", page)?.textContent : "The server does not answer: try again.";
    if (why === undefined) return show(page); // there is no such page, for a caller with a key
    find("#why").textContent = key() ? why : find("#why").textContent;
    if (page) keep("");
    find("#sign-in").hidden = false;
    return undefined;
  }
  return show(page);
}

function show(page) {
  document.title = page.title;
  document.body.replaceWith(document.adoptNode(page.body));
  return begin();
}

function signIn() {
  const form = find("#sign-in");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = find("#key").value.trim();
    if (!/^[!-~]+$/.test(text)) { // no header could hold it: it was copied with an invisible character, say
      find("#why").textContent = "The key has a character that no key can have. Expected ASCII without blanks.";
      return;
    }
    keep(text);
    enter();
  });
  if (key()) {
    form.hidden = true;
    return enter();
  }
  return find("#key").focus();
}

// Hides what does not have the words, and the states that are not chosen.
function filtering(rows, textOf) {
  const form = find(".filters");
  const chosen = () => [...form.querySelectorAll("[name=tone]:checked")].map((box) => box.value);
  const apply = () => {
    const words = find("#filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const tones = chosen();
    let shown = 0;
    for (const row of rows()) {
      const text = textOf(row);
      row.hidden = !words.every((word) => text.includes(word)) || (tones.length > 0 && !tones.includes(row.dataset.tone));
      shown += !row.hidden;
    }
    find("#shown").textContent = words.length || tones.length ? `${shown} of ${rows().length} shown` : "";
    for (const section of document.querySelectorAll("main > section")) {
      const inside = [...section.querySelectorAll("details")];
      if (inside.length) section.hidden = inside.every((each) => each.hidden);
    }
  };
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", apply);
  return apply;
}

addEventListener("keydown", (event) => {
  const filter = find("#filter");
  if (event.key !== "/" || !filter || event.target.closest("input, textarea, select")) return;
  event.preventDefault();
  filter.focus();
});

// Loads or unloads the model, by the protocols' own route.
async function act(button, live) {
  const name = JSON.parse(find("#trial").dataset.json).name;
  const { act: verb } = button.dataset;
  const told = find("#done");
  told.className = "";
  told.textContent = verb === "load" ? "Loading…" : "Unloading…";
  try {
    const answer = await ask(address(`v2/repository/models/${encodeURIComponent(name)}/${verb}`), { method: "POST" });
    if (!answer.ok) throw new Error(errorIn(await answer.text(), answer.status));
    told.textContent = verb === "load" ? "Loaded." : "Unloaded.";
  } catch (error) {
    told.className = "bad";
    told.textContent = error.message;
  }
  await live.look();
}

async function modelPage(live) {
  find("#actions").addEventListener("click", (event) => {
    const button = event.target.closest("[data-act]");
    if (button) act(button, live);
  });
  const [{ drawCharts }, { Trial }] = await Promise.all([import("./charts.js"), import("./trial.js")]);
  const trial = new Trial(find("#trial"), live);
  const draw = () => drawCharts(find("#charts"));
  live.changed = (ids) => {
    if (ids.includes("charts")) draw();
    if (ids.includes("trial")) trial.update();
  };
  addEventListener("resize", draw);
  draw();
  trial.update();
}

function statusPage(live) {
  if (!find("#filters")) return;
  const rows = () => [...find("#models").rows];
  const apply = filtering(rows, (row) => row.textContent.toLowerCase());
  live.changed = apply;
}

function documentationPage() {
  const apply = filtering(
    () => [...document.querySelectorAll("details")],
    (each) => find("summary", each).textContent.toLowerCase(),
  );
  for (const command of document.querySelectorAll("pre.copy")) command.after(copying(() => command.textContent));
  apply();
}

function begin() {
  const { kind } = document.body.dataset;
  if (kind === "sign-in") return signIn();
  remember();
  const out = find("#sign-out");
  out.hidden = !key();
  out.addEventListener("click", () => {
    keep("");
    location.reload();
  });
  const open = { model: modelPage, status: statusPage, docs: documentationPage }[kind];
  const live = new Live(() => open?.(live));
  live.begin();
  return open?.(live);
}

begin();
