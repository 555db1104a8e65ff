// @ts-check
/** The command palette (Ctrl-K): finds groups, streams, pages and actions by name. */

import { get } from '../api.js';
import { html, useEffect, useId, useRef, useState } from '../html.js';
import { matches, parseFilter } from '../rows.js';
import { open } from '../router.js';
import { words } from '../words.js';
import { Dialog } from './dialog.js';
import { Health, Name } from './parts.js';
import { say } from './toasts.js';

const GROUPS_MAX = 8;
const ASK_AFTER_MS = 120;

/**
 * @typedef {object} Command
 * @property {string} text
 * @property {() => void} run
 * @property {string} [kind] such as `page`
 * @property {string} [keys]
 */

/** Actions that the page shown offers. @type {Set<{ commands: () => Command[] }>} */
const offered = new Set();

/** Offers commands in the palette while a component is shown. @param {Command[]} commands */
export function useCommands(commands) {
  const latest = useRef(commands);
  latest.current = commands;
  useEffect(() => {
    const entry = { commands: () => latest.current };
    offered.add(entry);
    return () => void offered.delete(entry);
  }, []);
}

/** @param {{ pages: Command[], onClose: () => void }} props */
export function Palette({ pages, onClose }) {
  const [text, setText] = useState('');
  const [found, setFound] = useState({ text: /** @type {string | null} */ (null), rows: /** @type {any[]} */ ([]) });
  const [at, setAt] = useState(0);
  const [entered, setEntered] = useState(false);
  const listId = useId();
  useEffect(() => {
    const controller = new AbortController();
    const timer = setTimeout(() => get('/overview', { q: text || null, count: GROUPS_MAX }, controller.signal).then((answer) => setFound({ text, rows: answer.rows }), (problem) => controller.signal.aborted || (setFound({ text, rows: [] }), say(problem.message))), ASK_AFTER_MS);
    return () => { clearTimeout(timer); controller.abort(); };
  }, [text]);

  const filter = parseFilter(text);
  const isAnswered = found.text === text;
  const rows = found.rows.filter((row) => isAnswered || matches(filter, `${row.stream} ${row.group ?? ''}`)).map((row) => ({
    kind: row.group === null ? words.palette.stream : words.palette.group, row,
    run: () => (row.group === null ? open('stream', { s: row.stream }) : open('group', { s: row.stream, g: row.group })),
  }));
  const commands = [...offered].flatMap(({ commands }) => commands()).concat(pages).filter((command) => matches(filter, command.text));
  const all = /** @type {any[]} */ (text === '' ? [...commands, ...rows] : [...rows, ...commands]);
  const chosen = Math.min(at, all.length - 1);
  const run = (/** @type {any} */ each) => { onClose(); setTimeout(() => each.run()); };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const by = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (by !== 0) setAt((chosen + by + all.length) % Math.max(1, all.length));
    else if (event.key === 'Enter') setEntered(true);
    else return;
    event.preventDefault();
  };
  // Enter means the names that fit what was typed, not those of an earlier answer.
  useEffect(() => {
    if (!entered || !isAnswered) return;
    setEntered(false);
    if (all[chosen]) run(all[chosen]);
  }, [entered, isAnswered]);
  useEffect(() => document.getElementById(`${listId}-${chosen}`)?.scrollIntoView({ block: 'nearest' }), [chosen]);
  return html`<${Dialog} title=${words.palette.title} onClose=${onClose} class="palette">
    <input type="text" role="combobox" aria-label=${words.palette.title} aria-expanded="true" aria-controls=${listId} aria-activedescendant=${chosen >= 0 ? `${listId}-${chosen}` : undefined}
      autocomplete="off" data-focus placeholder=${words.palette.placeholder} value=${text} onKeyDown=${onKeyDown}
      onInput=${(/** @type {any} */ event) => { setText(event.target.value); setAt(0); setEntered(false); }} />
    <ul id=${listId} role="listbox" aria-label=${words.palette.results}>
      ${all.map((each, index) => html`<li id=${`${listId}-${index}`} key=${each.row ? each.row.key : each.text} role="option" aria-selected=${index === chosen} onClick=${() => run(each)} onPointerMove=${() => setAt(index)}>
        <span class="kind">${each.kind ?? words.palette.action}</span>
        <span class="what">${each.row ? html`<${Name} name=${each.row.stream} max=${40} />${each.row.group !== null && html` / <${Name} name=${each.row.group} max=${40} />`} <${Health} health=${each.row.health} brief=${true} />` : each.text}</span>
        ${each.keys && html`<kbd>${each.keys}</kbd>`}</li>`)}
    </ul>
    ${all.length === 0 && html`<p class="empty">${words.palette.nothing}</p>`}
  <//>`;
}
