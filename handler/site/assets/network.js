// Requests to this server, below its prefix, with the caller's key if it has given one.

export const base = new URL("../../", import.meta.url);

const PLACE = `dragoman key ${base.pathname}`;

export const address = (path) => new URL(path, base);

export const key = () => sessionStorage.getItem(PLACE) ?? "";

export function keep(text) {
  if (text) sessionStorage.setItem(PLACE, text);
  else sessionStorage.removeItem(PLACE);
}

export function ask(where, options = {}) {
  const headers = { ...options.headers };
  if (key()) headers.authorization = `Bearer ${key()}`;
  return fetch(where, { cache: "no-store", ...options, headers });
}

// Returns the page at an address as a document, and its status.
export async function pageAt(where) {
  const answer = await ask(where, { headers: { accept: "text/html" } });
  const text = await answer.text();
  const parsed = new DOMParser().parseFromString(text, "text/html");
  return { ok: answer.ok, status: answer.status, page: parsed };
}

// Returns the text of an error in any protocol's form.
export function errorIn(text, status) {
  try {
    const said = JSON.parse(text);
    return said.error ?? said.message ?? said.status?.msg ?? text;
  } catch {
    return text || `status ${status}`;
  }
}
