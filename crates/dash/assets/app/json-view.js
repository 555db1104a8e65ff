// @ts-check
/**
 * Lays out a JSON text as lines that can be folded. Knows no DOM.
 *
 * It works on the text, never on parsed values: a number of 19 digits and `1e999` stay as they were written, and a key that occurs
 * twice is shown twice. It uses no recursion, so nesting is limited by memory alone, and it works in steps, so that a page stays
 * responsive while a large text is laid out.
 */

/** Kinds of lines. */
export const OPEN = 1;
export const CLOSE = 2;
export const SCALAR = 3;
/** An object or array without members: one line. */
export const EMPTY = 4;

/**
 * @typedef {object} Line
 * @property {number} kind
 * @property {number} depth
 * @property {string | null} key the key as written, with its quotes
 * @property {string} text the value as written; a bracket for OPEN and CLOSE
 * @property {boolean} comma whether a comma follows
 * @property {number} partner the line of the other bracket, or -1
 * @property {number} members number of members of an object or array
 */

const SPACE = /[ \t\n\r]*/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const WORD = /true|false|null/y;

/** Returns whether a text may be a JSON object or array, by its first and last character. @param {string} text */
export function maybeJson(text) {
  const first = /^[ \t\n\r]*([{[])/.exec(text);
  if (!first) return false;
  const last = text.slice(-64).trimEnd().at(-1);
  return last === (first[1] === '{' ? '}' : ']');
}

/** Lays out one text. Call `step` until it returns true; then `error` says whether the text is JSON. */
export class JsonLayout {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
    /** Why the text is not JSON, or null. @type {string | null} */
    this.error = null;
    this.done = false;
    this.position = 0;
    // One column per property of a line: a large document has hundreds of thousands of lines.
    /** @type {number[]} */ this.kinds = [];
    /** @type {number[]} */ this.depths = [];
    /** @type {number[]} */ this.keyStarts = [];
    /** @type {number[]} */ this.keyEnds = [];
    /** @type {number[]} */ this.starts = [];
    /** @type {number[]} */ this.ends = [];
    /** @type {number[]} */ this.partners = [];
    /** @type {number[]} */ this.members = [];
    /** @type {boolean[]} */ this.commas = [];
    /** Lines of the brackets that are open. @type {number[]} */
    this.open = [];
    /** What comes next: `value`, `first` (a member or the closing bracket) or `after` (a comma or the closing bracket). */
    this.expect = 'value';
  }

  /** Number of lines laid out so far. */
  get length() {
    return this.kinds.length;
  }

  /** Lays out at most this number of tokens. Returns true at the end. @param {number} tokens */
  step(tokens) {
    for (let left = tokens; left > 0 && !this.done; left -= 1) this.#token();
    return this.done;
  }

  #token() {
    this.#match(SPACE);
    const inObject = this.open.length > 0 && this.text[this.starts[this.open[this.open.length - 1]]] === '{';
    const character = this.text[this.position];
    if (this.expect !== 'value' && this.open.length === 0) {
      this.done = true;
      if (this.position < this.text.length) this.#fail('text after the end of the document');
      return;
    }
    if (character === undefined) return this.#fail('the document ends too early');
    if (this.expect !== 'value' && (character === '}' || character === ']')) return this.#close(character);
    if (this.expect === 'after') {
      if (character !== ',') return this.#fail('a comma or a closing bracket is missing');
      this.commas[this.length - 1] = true;
      this.position += 1;
      this.#match(SPACE);
    }
    let keyStart = 0;
    let keyEnd = 0;
    if (inObject) {
      keyStart = this.position;
      if (!this.#match(STRING)) return this.#fail('a key in quotes is missing');
      keyEnd = this.position;
      this.#match(SPACE);
      if (this.text[this.position] !== ':') return this.#fail('a colon is missing');
      this.position += 1;
      this.#match(SPACE);
    }
    this.#value(keyStart, keyEnd);
  }

  /** @param {number} keyStart @param {number} keyEnd */
  #value(keyStart, keyEnd) {
    const start = this.position;
    const character = this.text[start];
    if (this.open.length > 0) this.members[this.open[this.open.length - 1]] += 1;
    if (character === '{' || character === '[') {
      this.position += 1;
      this.#push(OPEN, this.open.length, keyStart, keyEnd, start, start + 1);
      this.open.push(this.length - 1);
      this.expect = 'first';
      return;
    }
    const pattern = character === '"' ? STRING : character === '-' || (character >= '0' && character <= '9') ? NUMBER : WORD;
    if (!this.#match(pattern)) return this.#fail('a value is missing or malformed');
    this.#push(SCALAR, this.open.length, keyStart, keyEnd, start, this.position);
    this.expect = 'after';
  }

  /** @param {string} character */
  #close(character) {
    const opener = /** @type {number} */ (this.open.pop());
    if ((this.text[this.starts[opener]] === '{') !== (character === '}')) return this.#fail('the brackets do not match');
    this.position += 1;
    if (this.members[opener] === 0) {
      this.kinds[opener] = EMPTY;
      this.ends[opener] = this.position;
    } else {
      this.#push(CLOSE, this.open.length, 0, 0, this.position - 1, this.position);
      this.partners[opener] = this.length - 1;
      this.partners[this.length - 1] = opener;
    }
    this.expect = 'after';
  }

  /** @param {number} kind @param {number} depth @param {number} keyStart @param {number} keyEnd @param {number} start @param {number} end */
  #push(kind, depth, keyStart, keyEnd, start, end) {
    this.kinds.push(kind);
    this.depths.push(depth);
    this.keyStarts.push(keyStart);
    this.keyEnds.push(keyEnd);
    this.starts.push(start);
    this.ends.push(end);
    this.partners.push(-1);
    this.members.push(0);
    this.commas.push(false);
  }

  /** @param {RegExp} pattern */
  #match(pattern) {
    pattern.lastIndex = this.position;
    if (!pattern.test(this.text)) return false;
    this.position = pattern.lastIndex;
    return true;
  }

  /** @param {string} why */
  #fail(why) {
    this.error = `${why} at character ${this.position + 1}`;
    this.done = true;
  }

  /** @param {number} at @returns {Line} */
  line(at) {
    const key = this.keyEnds[at] > this.keyStarts[at] ? this.text.slice(this.keyStarts[at], this.keyEnds[at]) : null;
    return {
      kind: this.kinds[at],
      depth: this.depths[at],
      key,
      text: this.kinds[at] === EMPTY ? (this.text[this.starts[at]] === '{' ? '{}' : '[]') : this.text.slice(this.starts[at], this.ends[at]),
      comma: this.commas[at],
      partner: this.partners[at],
      members: this.members[at],
    };
  }

  /** Returns the lines that are visible if these lines are folded. @param {Set<number>} folded */
  visible(folded) {
    const lines = [];
    for (let at = 0; at < this.length; at += 1) {
      lines.push(at);
      if (this.kinds[at] === OPEN && folded.has(at) && this.partners[at] > at) at = this.partners[at];
    }
    return lines;
  }

  /** Returns the lines to fold at first: those below this depth, if the document has more than this number of lines. @param {number} depth @param {number} lines */
  foldedAtFirst(depth, lines) {
    const folded = new Set();
    if (this.length <= lines) return folded;
    for (let at = 0; at < this.length; at += 1) if (this.kinds[at] === OPEN && this.depths[at] >= depth) folded.add(at);
    return folded;
  }

  /**
   * Returns a document as a table: an array of objects has a column for each key, an object and other arrays have a row for each
   * member. Returns null if the layout is not complete.
   * @param {number} rowsMax
   */
  table(rowsMax) {
    if (!this.done || this.error || this.length === 0 || this.kinds[0] !== OPEN) return null;
    const isArray = this.text[this.starts[0]] === '[';
    /** @type {{ name: string, at: number }[]} */
    const members = [];
    for (let at = 1; at < this.length - 1 && members.length < rowsMax; at += 1) {
      members.push({ name: isArray ? String(members.length) : unquoted(this.text.slice(this.keyStarts[at], this.keyEnds[at])), at });
      if (this.kinds[at] === OPEN) at = this.partners[at];
    }
    const objects = isArray && members.length > 0 && members.every(({ at }) => this.text[this.starts[at]] === '{');
    if (!objects) {
      return { columns: ['', 'value'], rows: members.map(({ name, at }) => [name, this.#whole(at)]), more: this.members[0] - members.length };
    }
    /** @type {string[]} */
    const columns = [];
    const rows = members.map(({ at }) => {
      /** @type {Map<string, string>} */
      const cells = new Map();
      for (let inner = at + 1; inner < this.partners[at]; inner += 1) {
        const name = unquoted(this.text.slice(this.keyStarts[inner], this.keyEnds[inner]));
        if (!columns.includes(name) && columns.length < 40) columns.push(name);
        cells.set(name, this.#whole(inner));
        if (this.kinds[inner] === OPEN) inner = this.partners[inner];
      }
      return cells;
    });
    return { columns, rows: rows.map((cells) => columns.map((name) => cells.get(name) ?? '')), more: this.members[0] - members.length };
  }

  /** Returns a member as written; a string without its quotes. @param {number} at */
  #whole(at) {
    const end = this.kinds[at] === OPEN ? this.ends[this.partners[at]] : this.ends[at];
    const text = this.text.slice(this.starts[at], end);
    return text.startsWith('"') ? unquoted(text) : text;
  }
}

/** Decodes a JSON string. @param {string} text with quotes */
export function unquoted(text) {
  return text.includes('\\') ? String(JSON.parse(text)) : text.slice(1, -1);
}
