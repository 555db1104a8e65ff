// @ts-check
/**
 * Makes characters visible that could mislead a reader: control characters, bidirectional controls and invisible characters.
 * Knows no DOM.
 */

/**
 * Controls (C0, DEL, C1), soft hyphen, Arabic letter mark, Mongolian vowel separator, zero width space, direction marks, line and
 * paragraph separators, bidirectional embeddings and isolates, word joiner and invisible operators, byte order mark, interlinear
 * annotations, halves of surrogate pairs, tags. Tab and newline are in the class; callers that lay out text keep them.
 */
const MISLEADING =
  // eslint-disable-next-line no-control-regex, no-misleading-character-class
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|\udb40[\udc00-\udc7f]|(?<=^|[\u0000-\u007f])[\u200c\u200d]|[\u200c\u200d](?=$|[\u0000-\u007f])/g;

/** Returns the label of a character: `⟨U+202E⟩`. @param {string} character */
function label(character) {
  const code = character.codePointAt(0) ?? 0;
  return `⟨U+${code.toString(16).toUpperCase().padStart(4, '0')}⟩`;
}

/**
 * Splits a text into parts that can be shown as they are, and labels of characters that cannot.
 * @param {string} text
 * @param {{ keepLines?: boolean }} [options] with `keepLines`, tabs and newlines stay as they are
 * @returns {{ text: string, label: boolean }[]}
 */
export function parts(text, options) {
  const found = [];
  let start = 0;
  for (const match of text.matchAll(MISLEADING)) {
    const character = match[0];
    if (options?.keepLines && (character === '\n' || character === '\t')) continue;
    if (match.index > start) found.push({ text: text.slice(start, match.index), label: false });
    found.push({ text: label(character), label: true });
    start = match.index + character.length;
  }
  if (start < text.length) found.push({ text: text.slice(start), label: false });
  return found;
}

/** Returns a text with labels instead of misleading characters, for tooltips and titles. @param {string} text */
export function printable(text) {
  return text.replace(MISLEADING, label);
}

/** Cuts a text to this number of characters, with `…` at the end. Never cuts a surrogate pair. @param {string} text @param {number} max */
export function clip(text, max) {
  if (text.length <= max) return text;
  const last = text.charCodeAt(max - 2);
  const end = last >= 0xd800 && last <= 0xdbff ? max - 2 : max - 1;
  return `${text.slice(0, end)}…`;
}
