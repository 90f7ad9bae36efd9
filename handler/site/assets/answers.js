// An answer as people read it: numbers in a table, class scores and explanations as bars, and the text as it came.

import { el } from "./dom.js";
import { shapeText } from "./fields.js";

const MOST_ROWS = 20;
const MOST_COLUMNS = 16;
const MOST_BARS = 20;

function short(value) {
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) || !Number.isFinite(value)) return String(value);
  return Math.abs(value) >= 1e-4 && Math.abs(value) < 1e7 ? String(Number(value.toPrecision(6))) : value.toExponential(3);
}

// Returns the rows of an output: the leading axis, everything else side by side.
function rowsOf({ shape, data }) {
  const wide = shape.length > 1 ? data.length / (shape[0] || 1) : 1;
  return Array.from({ length: wide ? Math.ceil(data.length / wide) : 0 }, (_, index) => data.slice(index * wide, (index + 1) * wide));
}

// Decides whether numbers are scores of classes: they say so by name or labels, or each row adds up to one.
function areScores(output, labels) {
  if (output.shape.length !== 2 || output.shape[1] < 2 || !output.data.every((each) => typeof each === "number")) return false;
  if (labels.length === output.shape[1] || /prob|score/i.test(output.name)) return output.data.every((each) => each >= 0);
  return rowsOf(output).every((row) => row.every((each) => each >= 0) && Math.abs(row.reduce((sum, each) => sum + each, 0) - 1) < 1e-3);
}

function bar(name, value, part, kind = "") {
  const fill = el("span", { class: `fill ${kind}` });
  fill.style.width = `${Math.max(0, Math.min(1, part)) * 100}%`;
  return el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "meter" }, fill), el("td", { class: "number" }, short(value)));
}

// Returns the bars of several rows, side by side where there is room.
const sideBySide = (tables) => el("div", { class: "rows" }, tables);

function scores(output, labels) {
  return sideBySide(rowsOf(output).slice(0, MOST_ROWS).map((row, index) => {
    const most = Math.max(1, ...row);
    const ranked = row.map((value, place) => [labels[place] ?? `class ${place}`, value]).sort((a, b) => b[1] - a[1]).slice(0, MOST_BARS);
    return el("table", { class: "bars" }, el("caption", {}, `Row ${index + 1}: ${ranked[0][0]}`),
      el("tbody", {}, ranked.map(([name, value]) => bar(name, value, value / most))));
  }));
}

function grid(output, labels) {
  const rows = rowsOf(output);
  const columns = Math.min(rows[0]?.length ?? 0, MOST_COLUMNS);
  const kind = output.datatype === "BYTES" ? "" : "number";
  const head = columns > 1 ? el("thead", {}, el("tr", {}, Array.from({ length: columns }, (_, index) => el("th", { scope: "col", class: kind }, labels[index] ?? `${index}`)))) : null;
  const body = rows.slice(0, MOST_ROWS).map((row) => el("tr", {}, row.slice(0, columns).map((value) => el("td", { class: kind }, short(value)))));
  const left = rows.length > MOST_ROWS || (rows[0]?.length ?? 0) > MOST_COLUMNS ? el("p", { class: "note" }, `Shown: ${Math.min(rows.length, MOST_ROWS)} of ${rows.length} rows, ${columns} of ${rows[0].length} columns.`) : null;
  return [el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `values of ${output.name}` }, el("table", { class: "grid" }, head, el("tbody", {}, body))), left];
}

export function outputs(found, model) {
  return found.map((output) => {
    const labels = model.outputs?.find((each) => each.name === output.name)?.labels ?? (found.length === 1 ? model.outputs?.find((each) => each.labels.length)?.labels : null) ?? [];
    const type = output.datatype === "number" ? "" : ` ${output.datatype}`;
    return el("section", { class: "output" }, el("h3", {}, output.name, el("small", {}, `${type} ${shapeText(output.shape)}`)),
      areScores(output, labels) ? scores(output, labels) : grid(output, labels));
  });
}

// Returns [name, contribution] of every element of an example, the strongest first.
function contributions(explanation) {
  const walk = (scored, names, path) => {
    if (Array.isArray(scored) && scored.length === 1 && path && !names?.length) return walk(scored[0], undefined, path);
    if (Array.isArray(scored)) return scored.flatMap((each, index) => walk(each, Array.isArray(names) ? names[index] : undefined, typeof names?.[index] === "string" ? names[index] : `${path}${path ? " " : ""}${index}`));
    if (scored && typeof scored === "object") return Object.entries(scored).flatMap(([name, each]) => walk(each, names?.[name], name));
    return [[path || "value", Number(scored)]];
  };
  return walk(explanation.importance_scores ?? {}, explanation.feature_names, "").sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
}

export function explanations(found, model) {
  const labels = model.outputs?.find((each) => each.labels.length)?.labels ?? [];
  return sideBySide(found.slice(0, MOST_ROWS).map((explanation, index) => {
    if (!explanation.importance_scores) return el("pre", { tabindex: "0" }, JSON.stringify(explanation, null, 2));
    const ranked = contributions(explanation);
    const most = Math.max(...ranked.map(([, value]) => Math.abs(value)), 1e-300);
    const target = explanation.target === undefined ? "" : `: ${labels[explanation.target] ?? `class ${explanation.target}`}`;
    const sum = explanation.base_value === undefined ? "" : ` (from ${short(explanation.base_value)} to ${short(explanation.prediction)})`;
    return el("table", { class: "bars" }, el("caption", {}, `Row ${index + 1}${target}${sum}`),
      el("tbody", {}, ranked.slice(0, MOST_BARS).map(([name, value]) => bar(name, value, Math.abs(value) / most, value < 0 ? "less" : ""))));
  }));
}
