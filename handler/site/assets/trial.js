// "Try it": a form from the model's signature, the request in every protocol, and the answer.

import { explanations, outputs } from "./answers.js";
import { copying, el, fresh, milliseconds } from "./dom.js";
import { Field, RawField } from "./fields.js";
import { address, ask, errorIn } from "./network.js";
import { PROTOCOLS } from "./protocols.js";
import { onTheWire, snippets } from "./snippets.js";

const LONGEST = 200_000; // characters of a text that the page shows

const bounded = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST)}\n… ${text.length - LONGEST} characters more` : text);

// Tabs as WAI-ARIA describes them: arrows, Home and End move, and only the chosen one is in the order of Tab.
function tabs(label, names, choose) {
  const stem = fresh("tab");
  const panel = el("div", { role: "tabpanel", id: `${stem}-panel`, tabindex: "0" });
  const buttons = names.map((name, index) => el("button", { type: "button", role: "tab", id: `${stem}-${index}`, "aria-controls": panel.id, onclick: () => pick(index) }, name));
  const pick = (chosen, focus) => {
    buttons.forEach((button, index) => {
      button.setAttribute("aria-selected", String(index === chosen));
      button.tabIndex = index === chosen ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", buttons[chosen].id);
    if (focus) buttons[chosen].focus();
    choose(chosen, panel);
  };
  const list = el("div", { role: "tablist", "aria-label": label }, buttons);
  list.addEventListener("keydown", (event) => {
    const now = buttons.indexOf(event.target);
    const next = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (next === undefined || now < 0) return;
    event.preventDefault();
    pick((next + buttons.length) % buttons.length, true);
  });
  return { list, panel, pick };
}

export class Trial {
  constructor(place, live) {
    this.place = place;
    this.live = live;
    this.known = "";
    this.language = "curl";
  }

  // Draws the form anew if the model has another signature than before: what a person has typed stays.
  update() {
    const model = JSON.parse(this.place.dataset.json);
    const known = JSON.stringify([model.loaded, model.inputs, model.outputs, model.signatures, model.explains]);
    if (known === this.known) return;
    this.known = known;
    this.model = model;
    if (model.loaded === null) this.unloaded();
    else this.draw();
  }

  unloaded() {
    const told = el("p", { role: "status" });
    const button = el("button", { type: "button", class: "primary" }, "Load the model and show its form");
    button.addEventListener("click", async () => {
      button.disabled = true;
      told.className = "";
      told.textContent = "Loading…";
      try {
        const answer = await ask(address(`v2/models/${encodeURIComponent(this.model.name)}`));
        if (!answer.ok) throw new Error(errorIn(await answer.text(), answer.status));
      } catch (error) {
        told.className = "bad";
        told.textContent = error.message;
      }
      button.disabled = false;
      await this.live.look();
    });
    this.place.replaceChildren(el("p", { class: "soft" }, "A model that is not in memory has no form: its file knows the inputs."), button, told);
  }

  draw() {
    const { model } = this;
    const examples = new Map((model.example?.inputs ?? []).map((each) => [each.name, each]));
    const changed = () => this.write();
    this.fields = model.inputs === null ? [new RawField(changed)] : model.inputs.map((input) => new Field(input, examples.get(input.name), changed));
    const protocols = PROTOCOLS.filter((protocol) => protocol.id !== "explain" || model.explains);
    this.send = el("button", { type: "submit", class: "primary" }, "Send");
    this.why = el("p", { class: "told", role: "status" });
    this.result = el("div", { class: "result", id: "answer", "aria-live": "polite" });
    this.choice = tabs("Protocols", protocols.map((each) => each.label), (index, panel) => {
      this.protocol = protocols[index];
      this.panel = panel;
      this.result.replaceChildren();
      this.write();
    });
    const form = el("form", { id: "form" }, el("div", { class: "fields" }, this.fields.map((field) => field.node)), this.choice.list, this.choice.panel, el("div", { class: "sending" }, this.send, this.why));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.run();
    });
    this.place.replaceChildren(form, this.result);
    this.choice.pick(0);
  }

  tensors() {
    return this.fields.flatMap((field) => field.get());
  }

  // Writes the request anew, or why there is none.
  write() {
    this.request = null;
    let tensors = null;
    let why = "";
    try {
      tensors = this.tensors();
      why = this.protocol.bars(this.model, tensors);
      if (!why) this.request = this.protocol.request(this.model, tensors);
    } catch (error) {
      why = error.message;
    }
    this.why.textContent = why;
    this.why.classList.toggle("bad", why !== "");
    this.send.disabled = why !== "" || Boolean(this.protocol.offline);
    const about = el("p", { class: "soft" }, this.protocol.about);
    if (!this.request) return this.panel.replaceChildren(about);
    const written = [["As it is sent", onTheWire(this.request)], ...snippets(this.protocol, this.model, tensors, this.request, this.place.dataset.grpc)];
    const names = written.map(([name]) => name);
    const inner = tabs("The request", names, (index, panel) => {
      this.language = names[index];
      const [, text] = written[index];
      panel.replaceChildren(el("pre", { class: "wire", tabindex: "0" }, bounded(text)), copying(() => text));
    });
    inner.list.classList.add("minor");
    this.panel.replaceChildren(about, inner.list, inner.panel);
    return inner.pick(Math.max(0, names.indexOf(this.language)));
  }

  async run() {
    const { protocol, model, request } = this;
    if (!request || protocol.offline) return;
    const shows = (act) => { if (protocol === this.protocol) act(); }; // else another tab was chosen meanwhile
    this.send.disabled = true;
    this.result.replaceChildren(el("p", { class: "soft" }, "Waiting for the answer…"));
    const started = performance.now();
    try {
      const answer = await ask(address(request.path), { method: "POST", headers: request.headers, body: request.body });
      const bytes = new Uint8Array(await answer.arrayBuffer());
      const took = performance.now() - started;
      shows(() => this.show(protocol, model, answer, bytes, took));
    } catch (error) {
      shows(() => this.result.replaceChildren(el("p", { class: "bad" }, `No answer: ${error.message}`)));
    }
    this.send.disabled = !this.request || Boolean(this.protocol.offline);
    this.live.look();
  }

  show(protocol, model, answer, bytes, took) {
    const text = new TextDecoder().decode(bytes);
    const timing = answer.headers.get("server-timing") ?? "";
    const [, infer] = /infer;dur=([\d.]+)/.exec(timing) ?? [];
    const size = `${bytes.length.toLocaleString("en")} bytes`;
    const inside = infer === undefined ? "" : `, ${milliseconds(Number(infer))} ms of it in the model`;
    const line = el("p", { class: answer.ok ? "status good" : "status bad" }, el("strong", {}, `${answer.status}`), ` in ${milliseconds(took)} ms${inside}; ${size}`);
    const raw = el("details", {}, el("summary", {}, "The answer as it came"), el("pre", { tabindex: "0" }, bounded(text)));
    if (!answer.ok) {
      this.result.replaceChildren(line, el("p", { class: "reason" }, errorIn(text, answer.status)), raw);
      return;
    }
    const found = protocol.read(answer.headers, bytes, model);
    const explained = found.explanations ? [el("h3", {}, "Contributions"), explanations(found.explanations, model)] : [];
    this.result.replaceChildren(line, ...explained.flat(), ...outputs(found.outputs, model), raw);
  }
}

