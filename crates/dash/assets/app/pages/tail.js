// @ts-check
/** The live tail: entries as they are added, or a group at work. It joins no group: nothing is delivered. */

import { commands } from '../cli.js';
import { count, timeMs, timeOfId } from '../format.js';
import { Component, html, useEffect, useRef, useState } from '../html.js';
import { useKeys } from '../keys.js';
import { isPaused, pause, status, useLive, watchOf } from '../live.js';
import { useGet } from '../api.js';
import { setQuery } from '../router.js';
import { words } from '../words.js';
import { Choices, CliLine, CopyButton, Link, Name, Panel } from '../ui/parts.js';
import { FilterBar } from '../ui/table.js';
import { FieldsLine } from '../ui/values.js';

const text = words.tail;
/** Lines that the page keeps. */
const LINES_MAX = 1000;
/** How close to the end the view must be to follow. */
const NEAR_PX = 40;

/** @param {{ query: URLSearchParams }} props */
export function Tail({ query }) {
  const stream = query.get('s') ?? '';
  const group = query.get('g') ?? '';
  const find = query.get('q') ?? '';
  const known = useGet('/stream', { stream });
  const groups = (known.data?.group_list ?? []).map((/** @type {any} */ row) => row.group).filter((/** @type {string | null} */ name) => name !== null);
  const view = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [lines, setLines] = useState(/** @type {any[]} */ ([]));
  const [progress, setProgress] = useState(/** @type {any} */ (null));
  const [following, setFollowing] = useState(true);
  const [stopped, setStopped] = useState(isPaused());
  /** Entries that came too fast to be shown. */
  const [left, setLeft] = useState(0);
  const number = useRef(0);
  const watch = group ? watchOf('tail', { stream, group }) : watchOf('tail', { stream, contains: find || null });
  const clear = () => { setLines([]); setLeft(0); };
  useEffect(() => { clear(); setProgress(null); }, [stream, group, find]);
  useEffect(() => () => pause(false), []);

  const add = (/** @type {any[]} */ some) => {
    const news = some.map((data) => ({ key: number.current += 1, data }));
    setLines((/** @type {any[]} */ old) => [...old, ...news].slice(-LINES_MAX));
  };
  useLive(watch, {
    entries: ({ items, skipped }) => {
      setLeft((/** @type {number} */ old) => old + skipped);
      add([...(skipped > 0 ? [{ skipped }] : []), ...items.map((/** @type {any} */ entry) => ({ entry }))]);
    },
    activity: ({ items }) => {
      const latest = items.filter((/** @type {any} */ each) => each.event === 'progress').at(-1);
      if (latest) setProgress(latest);
      add(items.filter((/** @type {any} */ each) => each.event !== 'progress').filter((/** @type {any} */ each) => !find || JSON.stringify(each).includes(find)).map((/** @type {any} */ each) => ({ activity: each })));
    },
  });
  useEffect(() => {
    if (following && view.current) view.current.scrollTop = view.current.scrollHeight;
  }, [lines, following]);
  const onScroll = () => {
    const element = view.current;
    if (element) setFollowing(element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_PX);
  };
  const toggle = () => {
    pause(!stopped);
    setStopped(!stopped);
  };
  useKeys({ p: toggle, End: () => setFollowing(true) });
  return html`<div class="page-head"><h1><${Link} page="stream" query=${{ s: stream }}><${Name} name=${stream} max=${48} /><//></h1><span class="soft">${stopped ? text.paused : following ? text.following : text.scrolled}</span>
      <div class="actions"><button type="button" class=${stopped ? 'primary' : ''} onClick=${toggle}>${stopped ? text.resume : text.pause} <kbd>p</kbd></button>
        ${!following && html`<button type="button" onClick=${() => setFollowing(true)}>${text.toEnd} <kbd>End</kbd></button>`}
        <button type="button" onClick=${clear}>${text.clear}</button></div></div>
    <${Panel} class="table-panel">
      <${FilterBar} value=${find} label=${text.find} onInput=${(/** @type {string} */ q) => setQuery({ q }, { replace: true })}>
        <label>${text.show} <select value=${group} onChange=${(/** @type {any} */ event) => setQuery({ g: event.target.value || null })}><option value="">${text.entries}</option>
          ${[...new Set([...groups, ...(group ? [group] : [])])].map((name) => html`<option key=${name} value=${name}>${text.groupAtWork(name)}</option>`)}</select></label>
        ${group && progress && html`<span class="soft">${text.progress(count(progress.lag), count(progress.pending))}</span>`}
        <span class="matched">${text.lines(count(lines.length))}</span>
      <//>
      ${left > 0 && html`<p class="note warn left-out">${text.left(count(left), find !== '')}</p>`}
      <div ref=${view} class="tail" onScroll=${onScroll} tabindex="0" role="log" aria-live="off" aria-label=${text.title}>
        ${lines.map(({ key, data }) => html`<${Line} key=${key} data=${data} stream=${stream} />`)}
        ${lines.length === 0 && html`<p class="empty">${find ? text.waitingFor(find) : group ? text.waitingGroup : text.waiting}</p>`}
      </div>
    <//>
    <p class="hint">${text.note}</p>
    <${CliLine} line=${find ? null : commands(status.value?.place ?? '').tail(stream, group || null)} />`;
}

/** A line, which is drawn once. @extends {Component<{ data: any, stream: string }, {}>} */
class Line extends Component {
  shouldComponentUpdate() {
    return false;
  }

  render() {
    return lineOf(this.props);
  }
}

/** @param {{ data: any, stream: string }} props */
function lineOf({ data, stream }) {
  if (data.skipped) return html`<div class="tail-line soft">${text.skipped(count(data.skipped))}</div>`;
  const entry = data.entry ?? data.activity;
  const id = entry.id ?? '';
  const at = entry.at_ms ?? timeOfId(id);
  const event = data.activity?.event;
  return html`<div class="tail-line"><span class="soft tail-time">${timeMs(event ? data.activity.seen_ms ?? at : at)}</span>
    <${Link} page="entry" query=${{ s: stream, id }} class="mono">${id}<//><${CopyButton} text=${id} class="small reveal" label=${words.parts.copy} />
    ${event && html`<span class=${`state ${event === 'done' ? 'read' : event}`}>${text.events[/** @type {'done'} */ (event)] ?? event}</span>`}
    ${entry.consumer && html`<${Name} name=${entry.consumer} max=${40} />`}${entry.deliveries > 1 && html`<span class="soft">×${entry.deliveries}</span>`}
    ${entry.fields && html`<${FieldsLine} fields=${entry.fields} max=${8} />`}</div>`;
}
