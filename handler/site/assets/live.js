// Keeps an open page as new as the server: looks again every few seconds, and replaces only what has changed.

import { find } from "./dom.js";
import { pageAt } from "./network.js";

const said = new Map(); // what the server last wrote into each part, whatever scripts have made of it since

export function remember(root = document) {
  said.clear();
  for (const part of root.querySelectorAll("[data-live]")) said.set(part.id, part.outerHTML);
}

// Returns the ids and tags of the parts: other ones where a table has come or gone, or where the repository is in trouble.
const parts = (root) => [...root.querySelectorAll("[data-live]")].map(({ id, tagName }) => `${tagName} ${id}`).join();

function replaceRows(old, fresh) {
  const known = new Map([...old.rows].map((row) => [row.id, row]));
  const rows = [...fresh.rows].map((row) => {
    const before = known.get(row.id);
    if (!before) return row;
    if (before.innerHTML === row.innerHTML && before.dataset.tone === row.dataset.tone) return before;
    if (!before.contains(document.activeElement)) return row;
    for (const [index, cell] of [...row.cells].entries()) {
      if (index) before.cells[index].replaceWith(cell); // the link, which has the focus, stays
    }
    before.dataset.tone = row.dataset.tone;
    return before;
  });
  if (rows.some((row, index) => row !== old.rows[index]) || rows.length !== old.rows.length) old.replaceChildren(...rows);
}

function patch(page) {
  const changed = [];
  for (const fresh of page.querySelectorAll("[data-live]")) {
    const old = document.getElementById(fresh.id);
    const html = fresh.outerHTML;
    if (!old || said.get(fresh.id) === html) continue;
    said.set(fresh.id, html);
    for (const name of ["json", "looked"]) if (name in fresh.dataset) old.dataset[name] = fresh.dataset[name];
    if (old.tagName === "TBODY") replaceRows(old, fresh);
    else if (fresh.dataset.live !== "attributes") old.replaceChildren(...fresh.childNodes);
    changed.push(fresh.id);
  }
  return changed;
}

export class Live {
  // `renewed`: is called when the server's content has taken the place of all of the page's. `changed`, which a page may
  // set, is called with the ids of the parts that are new.
  constructor(renewed) {
    const [seconds, paused] = document.body.dataset.live.split(" ");
    this.renewed = renewed;
    this.changed = () => {};
    this.seconds = Number(seconds);
    this.paused = paused === "paused";
    this.timer = 0;
    this.looking = null;
  }

  begin() {
    if (!this.seconds) return;
    find(".look").hidden = false;
    find("#pause").addEventListener("click", () => this.pause(!this.paused));
    document.addEventListener("visibilitychange", () => this.next(0));
    this.tell();
    this.pause(this.paused);
  }

  pause(paused) {
    this.paused = paused;
    find("#pause").textContent = paused ? "Resume" : "Pause";
    find("#pause").setAttribute("aria-pressed", String(paused));
    this.next(paused ? 0 : this.seconds);
  }

  next(seconds) {
    clearTimeout(this.timer);
    if (this.paused || document.visibilityState !== "visible") return;
    this.timer = setTimeout(() => this.look(), seconds * 1000);
  }

  // Looks now, paused or not. One look at a time.
  look() {
    this.looking ??= this.looked().finally(() => {
      this.looking = null;
      this.next(this.seconds);
    });
    return this.looking;
  }

  async looked() {
    try {
      const { ok, status, page } = await pageAt(location.href);
      if (!ok) throw new Error(find("#why", page)?.textContent ?? `status ${status}`);
      if (parts(page) === parts(document)) this.changed(patch(page));
      else this.renew(page);
      this.tell();
    } catch (error) {
      find("#looked").textContent = `No answer since ${this.time()}: ${error.message}`;
      find(".look").classList.add("bad");
    }
  }

  renew(page) {
    find("#main").replaceWith(find("#main", page));
    remember();
    this.changed = () => {};
    this.renewed();
  }

  time() {
    const at = find("[data-looked]")?.dataset.looked;
    return at ? new Date(at).toLocaleTimeString() : "";
  }

  tell() {
    find(".look").classList.remove("bad");
    find("#looked").textContent = `As of ${this.time()}`;
  }
}
