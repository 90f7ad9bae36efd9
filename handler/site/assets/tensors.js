// Tensors from what a person types or drops: text, JSON, CSV, .npy, an image. And their bytes in V2's binary form.

const WHOLE = /^(U?)INT(8|16|32|64)$/;
const SPECIAL = /^[+-]?(nan|inf(inity)?)$/i;
const BEYOND = { FP16: 65520, BF16: 2 ** 128 - 2 ** 119, FP32: 2 ** 128 - 2 ** 103, FP64: Infinity }; // what rounds to infinity

export const isText = (datatype) => datatype === "BYTES";
export const isWhole = (datatype) => WHOLE.test(datatype);

// Returns a whole number as it is: one that a double cannot hold becomes a BigInt.
export const whole = (value) => (Number.isSafeInteger(Number(value)) ? Number(value) : BigInt(value));

const BARE = /"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity)/g;

// Returns the value of a JSON text, in which NaN and infinities may be bare, as in V1. Browsers without the source of a
// number round the whole ones that a double cannot hold.
export function json(text) {
  const hasBare = /NaN|Infinity/.test(text);
  if (!hasBare && !/[[,:\s-]\d{16}/.test(text)) return JSON.parse(text);
  const quoted = hasBare ? text.replace(BARE, (token) => (token.startsWith('"') ? token : `"\\u0000${token}"`)) : text;
  return JSON.parse(quoted, (_, value, context) => {
    if (typeof value === "string") return /^\0-?(NaN|Infinity)$/.test(value) ? Number(value.slice(1)) : value;
    return typeof value === "number" && /^-?\d{16,}$/.test(context?.source ?? "") ? whole(context.source) : value;
  });
}

export const count = (shape) => shape.reduce((product, size) => product * size, 1);

// Decides whether the datatype holds a number, once it is rounded.
function holds(datatype, number) {
  const [, unsigned, bits] = WHOLE.exec(datatype) ?? [];
  if (bits === undefined) return !(Math.abs(number) >= BEYOND[datatype]);
  return unsigned ? number >= 0 && number < 2 ** bits : number >= -(2 ** (bits - 1)) && number < 2 ** (bits - 1);
}

// Returns one element. Throws an Error that names the text and what was expected.
export function element(text, datatype) {
  if (isText(datatype)) return typeof text === "string" || text instanceof Uint8Array ? text : JSON.stringify(text);
  if (datatype === "BOOL") {
    const known = { true: true, 1: true, false: false, 0: false }[String(text).trim().toLowerCase()];
    if (known === undefined) throw new Error(`${quoted(text)} is not a truth value: expected true or false`);
    return known;
  }
  const trimmed = String(text).trim();
  if (trimmed === "") throw new Error(`a field is empty: expected a number (${datatype})`);
  if (SPECIAL.test(trimmed) && !isWhole(datatype)) {
    return /nan/i.test(trimmed) ? "NaN" : trimmed.startsWith("-") ? "-Infinity" : "Infinity";
  }
  const number = Number(trimmed);
  if (Number.isNaN(number)) throw new Error(`${quoted(text)} is not a number: expected ${datatype}`);
  if (isWhole(datatype) && !Number.isInteger(number)) throw new Error(`${quoted(text)} is not a whole number: expected ${datatype}`);
  if (!holds(datatype, number)) throw new Error(`${quoted(text)} is out of range for ${datatype}`);
  if (isWhole(datatype) && !Number.isSafeInteger(number)) throw new Error(`${quoted(text)} has more digits than this form carries`);
  return number;
}

const quoted = (text) => `'${String(text).slice(0, 40)}'`;

// Returns the shape and the elements of nested lists. Throws an Error for lists of unequal lengths.
export function flattened(value) {
  const shape = [];
  for (let inner = value; Array.isArray(inner); [inner] = inner) shape.push(inner.length);
  const data = [];
  const walk = (part, depth) => {
    if (depth === shape.length) {
      if (Array.isArray(part)) throw new Error("the lists are nested to unequal depths");
      data.push(part);
    } else if (!Array.isArray(part) || part.length !== shape[depth]) {
      throw new Error(`the lists at depth ${depth + 1} have unequal lengths`);
    } else {
      for (const each of part) walk(each, depth + 1);
    }
  };
  walk(value, 0);
  return { shape, data };
}

export function nested(data, shape) {
  if (!shape.length) return data[0];
  if (shape.length === 1) return [...data];
  const step = count(shape.slice(1));
  return Array.from({ length: shape[0] }, (_, index) => nested(data.slice(index * step, (index + 1) * step), shape.slice(1)));
}

// Returns elements in a shape that the model takes, if there is just one way to see them so.
export function fitted(data, shape, wanted) {
  if (!wanted) return shape;
  const open = wanted.filter((size) => size < 0).length;
  if (wanted.length === shape.length && wanted.every((size, axis) => size < 0 || size === shape[axis])) return shape;
  const known = count(wanted.filter((size) => size >= 0));
  if (open === 0 && known === data.length) return wanted;
  if (open === 1 && known && data.length % known === 0) return wanted.map((size) => (size < 0 ? data.length / known : size));
  if (open > 1 && shape.length + 1 === wanted.length) return [1, ...shape];
  return shape;
}

// -- files -----------------------------------------------------------------------------------------------------------

const NPY = {
  b1: [(view, at) => view.getUint8(at) !== 0, 1], u1: [(view, at) => view.getUint8(at), 1], i1: [(view, at) => view.getInt8(at), 1],
  u2: [(view, at) => view.getUint16(at, true), 2], i2: [(view, at) => view.getInt16(at, true), 2],
  u4: [(view, at) => view.getUint32(at, true), 4], i4: [(view, at) => view.getInt32(at, true), 4],
  u8: [(view, at) => Number(view.getBigUint64(at, true)), 8], i8: [(view, at) => Number(view.getBigInt64(at, true)), 8],
  f2: [(view, at) => half(view.getUint16(at, true)), 2], f4: [(view, at) => view.getFloat32(at, true), 4], f8: [(view, at) => view.getFloat64(at, true), 8],
};

// Returns the array in an .npy file (numpy.lib.format, versions 1 to 3; little-endian, in C's order).
export function npy(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < 12 || String.fromCharCode(...bytes.slice(1, 6)) !== "NUMPY") throw new Error("the file is not an .npy file");
  const wide = bytes[6] > 1;
  const start = wide ? 12 : 10;
  const length = wide ? view.getUint32(8, true) : view.getUint16(8, true);
  const header = new TextDecoder().decode(bytes.slice(start, start + length));
  const [, descr] = /'descr': '[<|]?(\w+)'/.exec(header) ?? [];
  const [, sizes] = /'shape': \(([^)]*)\)/.exec(header) ?? [];
  if (!NPY[descr] || sizes === undefined) throw new Error("the .npy file has elements other than little-endian numbers");
  if (/'fortran_order': True/.test(header)) throw new Error("the .npy file is in Fortran's order: save numpy.ascontiguousarray of it");
  const shape = sizes.split(",").map((size) => size.trim()).filter(Boolean).map(Number);
  const [read, size] = NPY[descr];
  if (bytes.length < start + length + count(shape) * size) throw new Error("the .npy file is shorter than its shape says");
  return { shape, data: Array.from({ length: count(shape) }, (_, index) => read(view, start + length + index * size)) };
}

// Returns the cells of each line that is not blank. Quoted ones may hold separators, quotes and ends of lines (RFC 4180).
function cells(text) {
  const [separator] = /[,;\t]/.exec(text.replace(/"(?:[^"]|"")*"/g, "")) ?? [","];
  const end = `(${separator}|\\r\\n?|\\n|$)`;
  const next = new RegExp(` *"((?:[^"]|"")*)" *${end}|([^${separator}\\r\\n]*)${end}`, "y");
  const rows = [];
  for (let row = [], ended; ended !== "";) {
    const [, quotes, after, plain, last] = next.exec(text);
    row.push(quotes === undefined ? plain.trim() : quotes.replaceAll('""', '"'));
    ended = after ?? last;
    if (ended === separator) continue;
    if (quotes !== undefined || row.length > 1 || row[0] !== "") rows.push(row);
    row = [];
  }
  return rows;
}

const isValue = (cell) => !Number.isNaN(Number(cell)) || SPECIAL.test(cell) || /^(true|false|na|n\/a|null|none)$/i.test(cell);

// Returns the rows of a CSV file. A first row of names is left out, by the rule of `dragoman infer` and of the server.
export function csv(text, { name, datatype }) {
  const rows = cells(text);
  if (!rows.length) throw new Error("the CSV file is empty");
  const first = rows[0].map((cell) => cell.trim());
  const isHead = rows.length > 1 && (first.includes(name) || !(isText(datatype) || first.some(isValue)));
  const found = flattened(isHead ? rows.slice(1) : rows);
  return { shape: found.shape, data: found.data.map((cell) => element(cell, datatype)) };
}

// Returns an image's pixels in the input's shape, [.., height, width, 3 or 1] or with the channels first, and the `picture`
// as the model gets it.
export async function image(file, input) {
  const shape = input.shape ?? [-1, -1, -1, 3];
  const sizes = shape.length === 4 ? shape.slice(1) : shape;
  if (sizes.length !== 3) throw new Error(`input ${quoted(input.name)} has no axes of an image: expected [height, width, channels]`);
  const first = [1, 3].includes(sizes[0]) && ![1, 3].includes(sizes[2]);
  const [channels, high, wide] = first ? sizes : [sizes[2], sizes[0], sizes[1]];
  const bitmap = await createImageBitmap(file);
  const [width, height, depth] = [wide > 0 ? wide : bitmap.width, high > 0 ? high : bitmap.height, channels > 0 ? channels : 3];
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0, width, height);
  const pixels = context.getImageData(0, 0, width, height).data;
  const scaled = isWhole(input.datatype) ? (value) => value : (value) => Math.round((value / 255) * 1e6) / 1e6;
  const value = (y, x, channel) => {
    const at = 4 * (y * width + x);
    return scaled(depth === 1 ? Math.round(0.299 * pixels[at] + 0.587 * pixels[at + 1] + 0.114 * pixels[at + 2]) : pixels[at + channel]);
  };
  const data = [];
  const axes = first ? [depth, height, width] : [height, width, depth];
  for (let a = 0; a < axes[0]; a += 1) for (let b = 0; b < axes[1]; b += 1) for (let c = 0; c < axes[2]; c += 1) data.push(first ? value(b, c, a) : value(a, b, c));
  return { shape: shape.length === 4 ? [1, ...axes] : axes, data, picture: canvas };
}

// Returns the tensor in a dropped file, by what kind of file it is.
export async function fromFile(file, input) {
  if (/\.npy$/i.test(file.name)) return npy(new Uint8Array(await file.arrayBuffer()));
  if (/\.(csv|tsv)$/i.test(file.name)) return csv(await file.text(), input);
  if (/\.json$/i.test(file.name)) return flattened(JSON.parse(await file.text()));
  if (isText(input.datatype)) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    return { shape: fitted([0], [1], input.shape), data: [/^text\//.test(file.type) ? new TextDecoder().decode(bytes) : bytes] };
  }
  if (file.type.startsWith("image/")) return image(file, input);
  throw new Error(`${quoted(file.name)} is not an image, a CSV, JSON or .npy file`);
}

// -- bytes -----------------------------------------------------------------------------------------------------------

const WIDE = {
  BOOL: [1, "setUint8", "getUint8"], UINT8: [1, "setUint8", "getUint8"], INT8: [1, "setInt8", "getInt8"],
  UINT16: [2, "setUint16", "getUint16"], INT16: [2, "setInt16", "getInt16"], UINT32: [4, "setUint32", "getUint32"],
  INT32: [4, "setInt32", "getInt32"], FP32: [4, "setFloat32", "getFloat32"], FP64: [8, "setFloat64", "getFloat64"],
  UINT64: [8, "setBigUint64", "getBigUint64"], INT64: [8, "setBigInt64", "getBigInt64"], FP16: [2, "setUint16", "getUint16"], BF16: [2, "setUint16", "getUint16"],
};

export const encoded = (element) => (element instanceof Uint8Array ? element : new TextEncoder().encode(element));

export function toBytes({ datatype, data }) {
  if (isText(datatype)) {
    const parts = data.map(encoded);
    const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length + 4, 0));
    let at = 0;
    for (const part of parts) {
      new DataView(bytes.buffer).setUint32(at, part.length, true);
      bytes.set(part, at + 4);
      at += part.length + 4;
    }
    return bytes;
  }
  if (!WIDE[datatype]) throw new Error(`datatype ${quoted(datatype)} is unknown`);
  const [size, set] = WIDE[datatype];
  const view = new DataView(new ArrayBuffer(size * data.length));
  const form = datatype === "FP16" ? toHalf : datatype === "BF16" ? toBrain : /64$/.test(datatype) && isWhole(datatype) ? BigInt : Number;
  data.forEach((value, index) => view[set](index * size, form(value), true));
  return new Uint8Array(view.buffer);
}

export function fromBytes(bytes, datatype) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (isText(datatype)) {
    const data = [];
    for (let at = 0; at < bytes.length;) {
      const length = view.getUint32(at, true);
      data.push(new TextDecoder().decode(bytes.slice(at + 4, at + 4 + length)));
      at += 4 + length;
    }
    return data;
  }
  const [size, , get] = WIDE[datatype];
  const form = { BOOL: Boolean, FP16: half, BF16: brain }[datatype] ?? (isWhole(datatype) ? whole : Number);
  return Array.from({ length: bytes.length / size }, (_, index) => form(view[get](index * size, true)));
}

function half(bits) {
  const [sign, exponent, rest] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return rest ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + rest / 1024) : 2 ** -14 * (rest / 1024));
}

const nearest = (number) => number + 2 ** 52 - 2 ** 52; // a double has no fractions there: the sum rounds, ties to even

function toHalf(value) {
  const number = Number(value);
  const sign = Object.is(Math.sign(number), -0) || number < 0 ? 0x8000 : 0;
  const size = Math.abs(number);
  if (Number.isNaN(number)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  const exponent = Math.max(-14, Math.floor(Math.log2(size || 2 ** -24)));
  return sign | (((exponent + 14) << 10) + nearest((size / 2 ** exponent) * 1024));
}

const word = new DataView(new ArrayBuffer(4));

function brain(bits) {
  word.setUint32(0, bits << 16 >>> 0);
  return word.getFloat32(0);
}

function toBrain(value) {
  word.setFloat32(0, Number(value));
  const bits = word.getUint32(0);
  return Number.isNaN(Number(value)) ? 0x7fc0 : (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}
