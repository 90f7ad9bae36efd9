// The fields for one input: a grid of values where it is small, JSON for any shape, or a dropped file.

import { el, fresh } from "./dom.js";
import { count, element, fitted, flattened, fromFile, isText, isWhole, nested } from "./tensors.js";

const WIDEST = 32; // columns of a grid
const MOST = 256; // fields of a grid
const SHOWN = 4096; // elements of a file that are written into the JSON field

export const shapeText = (shape) => (shape ? `[${shape.map((size) => (size < 0 ? "any" : size)).join(", ")}]` : "any shape");

export class Field {
  // `changed`: is called when the value may be another one.
  constructor(input, example, changed) {
    this.input = input;
    this.changed = changed;
    this.tensor = null; // of a file too large to show
    this.value = example ? nested(example.data, example.shape) : this.blank();
    this.grid = this.fits(this.value);
    this.body = el("div", { class: "values" });
    this.told = el("p", { class: "told", role: "status" });
    this.sent = el("input", { type: "checkbox", checked: !input.optional || Boolean(example), onchange: () => this.choose() });
    const choice = input.optional ? [", optional ", el("label", {}, this.sent, " Send it")] : [];
    this.node = el("fieldset", { class: "field" },
      el("legend", {}, el("strong", {}, input.name), ` ${input.datatype} ${shapeText(input.shape)}`, choice),
      this.body, this.tools(), this.told);
    this.node.disabled = !this.sent.checked;
    this.draw();
    this.dropping();
    const size = count(this.least());
    if (!example && size > SHOWN) this.tell(`A row has ${size.toLocaleString("en")} elements: drop a file.`, false);
  }

  // Leaves an optional input out, or not. The legend of a fieldset that is disabled stays in use.
  choose() {
    this.node.disabled = !this.sent.checked;
    this.changed();
  }

  // Returns the sizes of one row.
  least() {
    return (this.input.shape ?? [1]).map((size) => (size < 0 ? 1 : size));
  }

  blank() {
    const shape = this.least();
    const one = isText(this.input.datatype) ? "" : this.input.datatype === "BOOL" ? true : 0;
    return count(shape) <= SHOWN ? nested(Array(count(shape)).fill(one), shape) : [];
  }

  // Decides whether rows and columns are the better form: up to two axes, and not too many. A field has no ends of lines.
  fits(value) {
    const rank = this.input.shape?.length;
    if (rank !== 1 && rank !== 2) return false;
    try {
      const { shape, data } = flattened(value);
      if (data.some((each) => /[\r\n]/.test(each))) return false;
      return shape.length === rank && (shape[1] ?? 1) <= WIDEST && count(shape) <= MOST && count(shape) > 0;
    } catch {
      return false;
    }
  }

  tools() {
    const picker = el("input", { type: "file", id: fresh("file"), class: "hidden-file", onchange: () => this.take(picker.files) });
    const label = el("label", { for: picker.id, class: "drop" }, "Drop a file, or choose one: image, CSV, .npy, JSON");
    const open = (this.input.shape ?? [])[0] < 0;
    this.adder = open ? el("button", { type: "button", class: "small", onclick: () => this.add() }, "Add a row") : null;
    this.switcher = el("button", { type: "button", class: "small", onclick: () => this.turn() }, "As JSON");
    return el("div", { class: "tools" }, this.adder, this.switcher, picker, label);
  }

  draw() {
    const { input } = this;
    if (this.adder) this.adder.hidden = !this.grid;
    this.switcher.textContent = this.grid ? "As JSON" : "As fields";
    this.switcher.hidden = !this.grid && !this.fits(this.value);
    if (!this.grid) {
      const text = JSON.stringify(this.value);
      const area = el("textarea", { rows: text.length > 200 ? 6 : 3, spellcheck: "false", "aria-label": `${input.name} as JSON`, value: text, oninput: () => this.changed() });
      this.read = () => JSON.parse(area.value);
      this.body.replaceChildren(area);
      return;
    }
    const rows = input.shape.length === 1 ? this.value.map((each) => [each]) : this.value;
    const names = rows[0].map((_, index) => input.labels[index] ?? (rows[0].length > 1 ? `${index}` : ""));
    const head = names.some(Boolean) ? el("thead", {}, el("tr", {}, names.map((name) => el("th", { scope: "col" }, name)))) : null;
    const body = rows.map((row, index) => el("tr", {}, row.map((value, place) => el("td", {}, this.cell(value, index, names[place])))));
    const long = isText(input.datatype) && rows[0].length === 1;
    this.body.replaceChildren(el("table", { class: long ? "grid long" : "grid" }, head, el("tbody", {}, body)));
    this.read = () => {
      const read = [...this.body.querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll("input")].map((cell) => cell.value));
      return input.shape.length === 1 ? read.map(([each]) => each) : read;
    };
  }

  cell(value, row, name) {
    const number = !isText(this.input.datatype) && this.input.datatype !== "BOOL";
    return el("input", {
      type: "text",
      inputmode: number ? (isWhole(this.input.datatype) ? "numeric" : "decimal") : null,
      "aria-label": [this.input.name, name, `row ${row + 1}`].filter(Boolean).join(", "),
      autocomplete: "off", spellcheck: "false", class: number ? "number" : "", value: String(value), oninput: () => this.changed(),
    });
  }

  add() {
    const rows = this.read();
    this.value = [...rows, rows.at(-1)];
    this.draw();
    this.changed();
  }

  turn() {
    this.tell("");
    try {
      this.tensor = null;
      const { shape, data } = flattened(this.read());
      this.value = nested(data.map((each) => element(each, this.input.datatype)), shape);
      this.grid = !this.grid && this.fits(this.value);
      this.draw();
      this.changed();
    } catch (error) {
      this.tell(error.message);
    }
  }

  dropping() {
    this.node.addEventListener("dragover", (event) => {
      event.preventDefault();
      this.node.classList.add("over");
    });
    this.node.addEventListener("dragleave", () => this.node.classList.remove("over"));
    this.node.addEventListener("drop", (event) => {
      event.preventDefault();
      this.node.classList.remove("over");
      this.take(event.dataTransfer.files);
    });
  }

  async take([file]) {
    if (!file || this.node.disabled) return;
    try {
      const { shape, data, picture } = await fromFile(file, this.input);
      const fit = fitted(data, shape, this.input.shape);
      const elements = data.map((each) => element(each, this.input.datatype));
      const large = data.length > SHOWN || data.some((each) => each instanceof Uint8Array);
      this.tensor = large ? { shape: fit, data: elements } : null;
      this.value = large ? [] : nested(elements, fit);
      this.grid = !large && this.fits(this.value);
      this.draw();
      if (large) this.body.replaceChildren(el("p", {}, `${file.name}: ${data.length.toLocaleString("en")} element${data.length > 1 ? "s" : ""}`));
      this.tell(`${file.name} has the shape ${shapeText(fit)}.`, false);
      if (picture) {
        picture.setAttribute("role", "img");
        picture.setAttribute("aria-label", `${file.name} as the model gets it`);
        this.told.append(picture);
      }
    } catch (error) {
      this.tell(error.message);
    }
    this.changed();
  }

  tell(text, wrong = true) {
    this.told.textContent = text;
    this.told.classList.toggle("bad", wrong && text !== "");
  }

  // Returns the tensor, none for an input that is left out. Throws an Error that names the input.
  get() {
    const { name, datatype } = this.input;
    if (!this.sent.checked) return [];
    if (this.tensor) return [{ name, datatype, ...this.tensor }];
    try {
      const { shape, data } = flattened(this.read());
      return [{ name, datatype, shape, data: data.map((each) => element(each, datatype)) }];
    } catch (error) {
      throw new Error(`input '${name}': ${error instanceof SyntaxError ? "its text is not JSON" : error.message}`);
    }
  }
}

// The field of a model that does not describe its inputs: the tensors themselves, as V2 writes them.
export class RawField {
  constructor(changed) {
    const start = '[{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]';
    this.area = el("textarea", { rows: 4, spellcheck: "false", "aria-label": "inputs as JSON", value: start, oninput: changed });
    this.node = el("fieldset", { class: "field" }, el("legend", {}, "The model does not describe its inputs: write them as V2 does"), this.area);
  }

  get() {
    try {
      return JSON.parse(this.area.value).map((each) => ({ ...each, data: this.data(each) }));
    } catch (error) {
      throw new Error(`inputs: ${error.message}`);
    }
  }

  data({ name, shape, datatype, data }) {
    const elements = flattened(data).data.map((each) => element(each, datatype));
    if (!Array.isArray(shape)) throw new Error(`'${name}' has no shape`);
    if (count(shape) !== elements.length) throw new Error(`'${name}' has ${elements.length} elements; its shape ${shapeText(shape)} needs ${count(shape)}`);
    return elements;
  }
}
