// Charts of the last ten minutes, one bar or point for ten seconds.

import { el, find, milliseconds, svg } from "./dom.js";

const SPAN = 10;
const SPANS = 60;
const HEIGHT = 132;
const LEFT = 46;
const BOTTOM = 20;
const TOP = 8;
const SHARES = [["p50", "median"], ["p95", "95 %"], ["p99", "99 %"]];

// Returns the least of 1, 2 and 5 times a power of ten that is as high as all values.
export function ceiling(most) {
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= most * 0.999);
}

function frame(width, most, unit, label) {
  const inner = HEIGHT - TOP - BOTTOM;
  const lines = [0, 0.5, 1].map((part) => {
    const y = TOP + inner * (1 - part);
    return [
      svg("line", { x1: LEFT, x2: width, y1: y, y2: y, class: "grid" }),
      svg("text", { x: LEFT - 6, y: y + 4, class: "tick end" }, (most * part).toLocaleString("en", { maximumSignificantDigits: 3 })),
    ];
  });
  const times = [[0, "10 min ago", "tick"], [0.5, "5 min", "tick middle"], [1, "now", "tick end"]].map(([part, text, kind]) =>
    svg("text", { x: LEFT + (width - LEFT) * part, y: HEIGHT - 4, class: kind }, text));
  return svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, role: "img", "aria-label": label, class: "chart" },
    svg("title", {}, `${label} (${unit})`), lines, times);
}

const at = (width, ago) => LEFT + ((width - LEFT) * (SPANS - 1 - ago / SPAN)) / SPANS;
const rise = (value, most) => ((HEIGHT - TOP - BOTTOM) * value) / most;

function requests(spans, width) {
  const total = spans.reduce((sum, span) => sum + span.count, 0);
  const failed = spans.reduce((sum, span) => sum + span.failures, 0);
  const most = ceiling(Math.max(...spans.map((span) => span.count + span.failures)));
  const chart = frame(width, most, "in ten seconds", `${total} ${total === 1 ? "request" : "requests"} answered in ten minutes, ${failed} failed`);
  const thick = Math.max(2, (width - LEFT) / SPANS - 1.5);
  for (const { ago, count, failures } of spans) {
    const x = at(width, ago);
    const [low, high] = [rise(count, most), rise(failures, most)];
    const floor = HEIGHT - BOTTOM;
    if (count) chart.append(svg("rect", { x, y: floor - low, width: thick, height: low, class: "bar" }));
    if (failures) chart.append(svg("rect", { x, y: floor - low - high, width: thick, height: high, class: "bar failed" }));
  }
  return chart;
}

function times(spans, width) {
  const known = spans.filter((span) => span.p99 !== null);
  const most = ceiling(Math.max(0, ...known.map((span) => span.p99)));
  const last = known.at(-1);
  const label = last ? `times of the latest requests: median ${milliseconds(last.p50)} ms, 99 % below ${milliseconds(last.p99)} ms` : "no times";
  const chart = frame(width, most, "ms", label);
  const middle = (width - LEFT) / SPANS / 2;
  for (const [name] of SHARES) {
    const points = known.map((span) => [at(width, span.ago) + middle, HEIGHT - BOTTOM - rise(span[name], most)]);
    chart.append(svg("polyline", { points: points.map((point) => point.join()).join(" "), class: `line ${name}` }));
    for (const [cx, cy] of points) chart.append(svg("circle", { cx, cy, r: 2, class: `dot ${name}` }));
  }
  return chart;
}

const legend = (...marks) => el("p", { class: "legend" }, marks.map(([kind, text]) =>
  el("span", {}, svg("svg", { width: 12, height: 8, "aria-hidden": "true" }, svg("rect", { width: 12, height: 8, rx: 2, class: kind })), ` ${text}`)));

function figure(title, chart, marks) {
  return el("figure", {}, el("figcaption", {}, title, marks), chart);
}

// Shows buttons for the protocols, if they are several. One is chosen for all versions, and stays so.
function choice(place, versions) {
  const names = [...new Set(versions.flatMap((each) => each.protocols.map(({ name }) => name)))];
  const before = find("#protocols");
  const chosen = find("#protocols :checked")?.value;
  if (names.length < 2) {
    before?.remove();
    return "";
  }
  if (before?.dataset.names === names.join()) return chosen;
  const kept = names.includes(chosen) ? chosen : "";
  const chips = ["", ...names].map((name) => el("label", { class: "chip" },
    el("input", { type: "radio", name: "protocol", value: name, checked: name === kept, onchange: () => drawCharts(place) }), ` ${name || "All protocols"}`));
  const made = el("fieldset", { id: "protocols", class: "chips", "data-names": names.join() }, el("legend", { class: "hidden" }, "Protocol of the charts"), chips);
  if (before) before.replaceWith(made);
  else place.before(made);
  return kept;
}

export function drawCharts(place) {
  const versions = JSON.parse(place.dataset.json);
  const chosen = choice(place, versions);
  const wide = place.clientWidth;
  const width = wide > 760 ? Math.floor((wide - 24) / 2) : wide;
  const drawn = versions.map(({ version, spans, protocols }) =>
    [version, chosen ? protocols.find(({ name }) => name === chosen)?.spans ?? [] : spans]).filter(([, spans]) => spans.length)
    .map(([version, spans]) => el("div", { class: "charts", "data-version": version },
      figure(`Version ${version}: requests in ten seconds`, requests(spans, width), legend(["bar", "answered"], ["bar failed", "failed"])),
      figure(`Version ${version}: milliseconds`, times(spans, width), legend(...SHARES.map(([name, text]) => [`mark ${name}`, text])))));
  place.replaceChildren(...(drawn.length ? drawn : [el("p", { class: "soft" }, "No request in the last ten minutes.")]));
}
