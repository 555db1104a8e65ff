// @ts-check
/** Lays out bytes as a hex dump. Knows no DOM. */

/** Bytes in one line of a dump. */
export const BYTES_PER_LINE = 16;

/** Decodes hexadecimal digits. Ignores a digit without a partner. @param {string} digits */
export function fromHex(digits) {
  const bytes = new Uint8Array(digits.length >> 1);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = Number.parseInt(digits.slice(2 * at, 2 * at + 2), 16);
  return bytes;
}

/** Returns the number of lines of a dump. @param {Uint8Array} bytes */
export const lineCount = (bytes) => Math.ceil(bytes.length / BYTES_PER_LINE);

/**
 * Returns one line of a dump: the offset, the bytes in two blocks of eight, and the ASCII characters with `.` for all others.
 * @param {Uint8Array} bytes @param {number} line
 */
export function dumpLine(bytes, line) {
  const start = line * BYTES_PER_LINE;
  let hex = '';
  let ascii = '';
  for (let at = start; at < start + BYTES_PER_LINE; at += 1) {
    if (at === start + 8) hex += ' ';
    if (at >= bytes.length) {
      hex += '   ';
      continue;
    }
    const byte = bytes[at];
    hex += `${byte.toString(16).padStart(2, '0')} `;
    ascii += byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : '.';
  }
  return { offset: start.toString(16).padStart(8, '0'), hex: hex.trimEnd(), ascii };
}
