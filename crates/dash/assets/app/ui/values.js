// @ts-check
/** Shows fields of entries: on one line in lists, and whole as text, JSON, hex dump or table. */

import { bytes, count } from '../format.js';
import { BYTES_PER_LINE, dumpLine, fromHex, lineCount } from '../hex.js';
import { html, useEffect, useMemo, useRef, useState } from '../html.js';
import { CLOSE, EMPTY, JsonLayout, OPEN, maybeJson } from '../json-view.js';
import { clip } from '../printable.js';
import { windowOf } from '../rows.js';
import { words } from '../words.js';
import { Choices, CopyButton, Name, Text } from './parts.js';

/** @typedef {{ text?: string, hex?: string, hidden?: boolean, bytes?: number, cut?: boolean }} Value */

/** Longest value in a list, and longest line of a JSON document. */
const LINE_CHARACTERS_MAX = 120;
const JSON_LINE_CHARACTERS_MAX = 2000;
/** Longest text that is drawn at once; more on request. */
const TEXT_CHARACTERS_MAX = 100_000;
const TOKENS_PER_STEP = 20_000;
const TABLE_ROWS_MAX = 500;
const ROW_HEIGHT = 20;
const VIEW_HEIGHT_MAX = 480;
const INDENT_MAX = 40;

/** Returns the size of a value in bytes. @param {Value} value */
const sizeOf = (value) => value.bytes ?? (value.hex !== undefined ? value.hex.length / 2 : new Blob([value.text ?? '']).size);

/** Fields on one line: `item=book amount=2`. @param {{ fields: [string, Value, string?][], max?: number }} props */
export function FieldsLine({ fields, max = 6 }) {
  return html`<span class="fields-line">${fields.slice(0, max).map(([name, value], at) => html`<span class="pair" key=${at}><span class="field-name"><${Name} name=${name} max=${40} /></span>=<${ShortValue} value=${value} /></span> `)}
    ${fields.length > max && html`<span class="more">+${fields.length - max}</span>`}</span>`;
}

/** @param {{ value: Value }} props */
function ShortValue({ value }) {
  if (value.hidden) return html`<span class="hidden-value" title=${words.values.hiddenTitle}>${words.values.hidden}</span>`;
  if (value.hex !== undefined) return html`<code>${clip(`0x${value.hex}`, 40)}</code>`;
  const text = value.text ?? '';
  if (text === '') return html`<span class="unknown">""</span>`;
  return html`<bdi class="value"><${Text} text=${clip(text, LINE_CHARACTERS_MAX)} /></bdi>${value.cut && html`<span class="more"> ${bytes(value.bytes)}</span>`}`;
}

/**
 * One value, whole, in the form that the visitor chooses.
 * @param {{ value: Value, form: string, raw?: string | null }} props `form`: auto, text, json, hex or table; `raw`: address of the bytes
 */
export function ValueView({ value, form, raw }) {
  if (value.hidden) return html`<p class="hidden-value">${words.values.hiddenTitle}</p>`;
  const text = value.text;
  const wanted = form === 'auto' ? (text === undefined ? 'hex' : maybeJson(text) ? 'json' : 'text') : form;
  const cut = value.cut && html`<p class="note">${words.values.cut(bytes(value.bytes))}${raw && html` <a class="button small" href=${raw} download>${words.values.raw}</a>`}</p>`;
  if (wanted === 'hex' || text === undefined) return html`${cut}<${HexView} value=${value} />`;
  if (wanted === 'text' || !maybeJson(text)) return html`${cut}<${TextView} text=${text} />`;
  return html`${cut}<${JsonView} text=${text} table=${wanted === 'table'} />`;
}

/** @param {{ text: string }} props */
function TextView({ text }) {
  const [max, setMax] = useState(TEXT_CHARACTERS_MAX);
  if (text === '') return html`<p class="unknown">${words.values.empty}</p>`;
  return html`<pre class="value-text" dir="auto" tabindex="0"><${Text} text=${text.slice(0, max)} keepLines=${true} /></pre>
    ${text.length > max && html`<button type="button" class="small" onClick=${() => setMax(max + TEXT_CHARACTERS_MAX)}>${words.values.moreText(count(text.length - max))}</button>`}`;
}

/** @param {{ value: Value }} props */
function HexView({ value }) {
  const data = useMemo(() => (value.hex !== undefined ? fromHex(value.hex) : new TextEncoder().encode(value.text ?? '')), [value]);
  if (data.length === 0) return html`<p class="unknown">${words.values.empty}</p>`;
  return html`<${Lines} count=${lineCount(data)} label=${words.values.hexLabel(count(data.length), BYTES_PER_LINE)} class="hex" line=${(/** @type {number} */ at) => {
    const { offset, hex, ascii } = dumpLine(data, at);
    return html`<span class="offset">${offset}</span>  <span class="bytes">${hex.padEnd(48)}</span>  <span class="ascii">${ascii}</span>`;
  }} />`;
}

/** A JSON document, folded. Lays it out in steps, so that a large one does not freeze the page. @param {{ text: string, table: boolean }} props */
function JsonView({ text, table }) {
  const [layout, setLayout] = useState(/** @type {JsonLayout | null} */ (null));
  const [folded, setFolded] = useState(/** @type {Set<number>} */ (new Set()));
  const [long, setLong] = useState(/** @type {Set<number>} */ (new Set()));
  useEffect(() => {
    const next = new JsonLayout(text);
    let timer = 0;
    const step = () => {
      if (!next.step(TOKENS_PER_STEP)) {
        timer = setTimeout(step);
        return;
      }
      setFolded(next.foldedAtFirst(next.length > 5000 ? 1 : 3, 200));
      setLong(new Set());
      setLayout(next);
    };
    step();
    return () => clearTimeout(timer);
  }, [text]);
  const visible = useMemo(() => (layout && !layout.error ? layout.visible(folded) : []), [layout, folded]);
  if (!layout || layout.text !== text) return html`<p class="loading">${words.values.layingOut}</p>`;
  if (layout.error) return html`<p class="note">${words.values.notJson(layout.error)}</p><${TextView} text=${text} />`;
  const found = table ? layout.table(TABLE_ROWS_MAX) : null;
  if (found) return html`<${JsonTable} found=${found} />`;
  const toggle = (/** @type {number} */ at) => {
    const next = new Set(folded);
    next.has(at) ? next.delete(at) : next.add(at);
    setFolded(next);
  };
  const folds = layout.kinds.includes(OPEN);
  return html`${folds && html`<div class="value-tools"><button type="button" class="small" onClick=${() => setFolded(layout.foldedAtFirst(1, 0))}>${words.values.foldAll}</button>
      <button type="button" class="small" onClick=${() => setFolded(new Set())}>${words.values.unfoldAll}</button></div>`}
    <${Lines} count=${visible.length} label=${words.values.jsonLabel} class="json" line=${(/** @type {number} */ row) => html`<${JsonLine} layout=${layout} at=${visible[row]} folded=${folded.has(visible[row])} toggle=${toggle}
      whole=${long.has(visible[row])} showWhole=${(/** @type {number} */ at) => setLong(new Set([...long, at]))} />`} />`;
}

/** @param {{ layout: JsonLayout, at: number, folded: boolean, toggle: (at: number) => void, whole: boolean, showWhole: (at: number) => void }} props */
function JsonLine({ layout, at, folded, toggle, whole, showWhole }) {
  const { kind, depth, key, text, comma, members } = layout.line(at);
  const shown = whole ? text : clip(text, JSON_LINE_CHARACTERS_MAX);
  const indent = html`<span class="indent" style=${{ width: `${1.2 * Math.min(depth, INDENT_MAX)}em` }}>${depth > INDENT_MAX ? depth : ''}</span>`;
  const name = key !== null && html`<span class="json-key"><bdi><${Text} text=${clip(key, JSON_LINE_CHARACTERS_MAX)} /></bdi></span>: `;
  const tail = comma ? ',' : '';
  if (kind === OPEN) {
    const close = text === '{' ? '}' : ']';
    const summaryText = text === '{' ? words.values.keys(count(members), members) : words.values.items(count(members), members);
    return html`${indent}<button type="button" class="fold" aria-expanded=${!folded} aria-label=${folded ? words.values.unfold : words.values.fold} onClick=${() => toggle(at)}>${folded ? '▸' : '▾'}</button>${name}${text}${folded && html`<span class="more"> ${summaryText} </span>${close}${layout.commas[layout.partners[at]] ? ',' : ''}`}`;
  }
  const tone = kind === CLOSE || kind === EMPTY ? '' : text.startsWith('"') ? 'string' : /^[-\d]/.test(text) ? 'num' : 'word';
  return html`${indent}<span class="no-fold"></span>${name}<span class=${tone}><bdi><${Text} text=${shown} /></bdi></span>${tail}${shown.length < text.length && html` <button type="button" class="small" onClick=${() => showWhole(at)}>${words.values.whole(count(text.length))}</button>`}`;
}

/** @param {{ found: { columns: string[], rows: string[][], more: number } }} props */
function JsonTable({ found }) {
  return html`<div class="json-table" tabindex="0"><table><thead><tr>${found.columns.map((name, at) => html`<th scope="col" key=${at}><${Name} name=${name || ' '} /></th>`)}</tr></thead>
    <tbody>${found.rows.map((cells, at) => html`<tr key=${at}>${cells.map((cell) => html`<td><bdi><${Text} text=${clip(cell, 300)} /></bdi></td>`)}</tr>`)}</tbody></table>
    ${found.more > 0 && html`<p class="hint">${words.values.moreRows(count(found.more))}</p>`}</div>`;
}

/** Lines of equal height, of which only those in view are drawn. @param {{ count: number, line: (at: number) => any, label: string, class: string }} props */
function Lines({ count: lines, line, label, class: className }) {
  const frame = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [top, setTop] = useState(0);
  const height = Math.min(VIEW_HEIGHT_MAX, lines * ROW_HEIGHT + 12);
  const view = windowOf({ count: lines, rowHeight: ROW_HEIGHT, top, height });
  return html`<div ref=${frame} class=${`lines ${className}`} tabindex="0" role="region" aria-label=${label} style=${{ height: `${height}px` }}
    onScroll=${() => setTop(frame.current?.scrollTop ?? 0)}>
    <div class="lines-inner" style=${{ height: `${lines * ROW_HEIGHT}px` }}><div style=${{ transform: `translateY(${view.before}px)` }}>
      ${Array.from({ length: view.last - view.first }, (_, at) => html`<div class="line" key=${view.first + at}>${line(view.first + at)}</div>`)}
    </div></div></div>`;
}

/**
 * All fields of an entry, each with its form and tools.
 * @param {{ fields: [string, Value, string?][], form: string, onForm: (form: string) => void, raw: (field: { field: string } | { field_hex: string }, nth: number) => string | null }} props
 */
export function FieldsView({ fields, form, onForm, raw }) {
  const seen = /** @type {Map<string, number>} */ (new Map());
  const times = (/** @type {string} */ key) => fields.filter(([name, , nameHex]) => (nameHex ?? name) === key).length;
  return html`<div class="fields-view">
    <${Choices} label=${words.values.form} value=${form} onChange=${onForm} choices=${words.values.forms} />
    ${fields.length === 0 && html`<p class="empty">${words.values.noFields}</p>`}
    ${fields.map(([name, value, nameHex], at) => {
      const nth = seen.get(nameHex ?? name) ?? 0;
      seen.set(nameHex ?? name, nth + 1);
      const address = value.hidden ? null : raw(nameHex ? { field_hex: nameHex } : { field: name }, nth);
      return html`<section class="field-view" key=${at}>
        <header><h3><${Name} name=${name} /></h3>${times(nameHex ?? name) > 1 && html`<span class="hint">${words.values.repeated(nth + 1, times(nameHex ?? name))}</span>`}${!value.hidden && html`<span class="hint">${bytes(sizeOf(value))}</span>
          <span class="tools">${value.text !== undefined && !value.cut && html`<${CopyButton} text=${value.text} />`}
          ${address && html`<a class="button small" href=${address} download>${words.values.raw}</a>`}</span>`}</header>
        <${ValueView} value=${value} form=${form} raw=${address} />
      </section>`;
    })}
  </div>`;
}
