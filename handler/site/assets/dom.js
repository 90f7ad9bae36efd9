// Elements of the page, made without HTML text: what a model or a person has written stays text.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in { value: 0, checked: 0, disabled: 0, hidden: 0, textContent: 0 }) node[name] = value;
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

export const el = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);

export const svg = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

export const find = (selector, within = document) => within.querySelector(selector);

let numbered = 0;

// Returns an id that no other element has, for a label and its field.
export const fresh = (stem) => `${stem}-${(numbered += 1)}`;

// Copies a text, and says so on the button for a moment.
export function copying(text) {
  const button = el("button", { type: "button", class: "small" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy by hand";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return button;
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "";
  return value >= 100 ? Math.round(value).toLocaleString("en") : value < 1 ? value.toPrecision(3) : value.toFixed(2);
}
