// @ts-check
/** The page of an entry or dead letter: what it says, and what each group did with it. */

import { apiUrl, useGet } from '../api.js';
import { commands } from '../cli.js';
import { timeOfId } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { useKeys } from '../keys.js';
import { status, useLive } from '../live.js';
import { open, setQuery } from '../router.js';
import { words } from '../words.js';
import { useMay } from '../ui/action.js';
import { Ago, CliLine, Count, CopyButton, Duration, Link, Loaded, Moment, Name, Panel, Text } from '../ui/parts.js';
import { say } from '../ui/toasts.js';
import { FieldsView } from '../ui/values.js';
import { AddDialog, DeleteDialog } from './stream-actions.js';

const text = words.entry;
/** How often the life of an entry is read again, while a group still has to handle it and its fields are small. */
const LIFE_EVERY_MS = 2000;
const SMALL_CHARACTERS = 50_000;

/** @param {{ query: URLSearchParams }} props */
export function Entry({ query }) {
  const stream = query.get('s') ?? '';
  const id = query.get('id') ?? '';
  const form = query.get('as') ?? 'auto';
  const [every, setEvery] = useState(0);
  const found = useGet('/entry', { stream, id }, { every_ms: every });
  useEffect(() => setEvery(found.data && isSmall(found.data.fields) && !isFinished(found.data.groups) ? LIFE_EVERY_MS : 0), [found.data]);
  const [dialog, setDialog] = useState(/** @type {'again' | 'delete' | null} */ (null));
  const may = useMay();
  useLive('jobs');
  const data = found.data;
  const go = (/** @type {string | null | undefined} */ next) => (next ? open('entry', { s: stream, id: next, as: form === 'auto' ? null : form }) : undefined);
  useKeys({ '[': () => go(data?.previous), ']': () => go(data?.next), y: () => void navigator.clipboard?.writeText(id).then(() => say(words.parts.copied), () => {}) });
  return html`<div class="page-head"><h1 class="mono">${id}</h1><span class="crumbs">${text.of} <${Link} page="stream" query=${{ s: stream, from: id }}><${Name} name=${stream} max=${48} /><//></span>
      <div class="actions"><${CopyButton} text=${id} label=${text.copyId} class="" />
        ${data && html`<button type="button" disabled=${!data.previous} onClick=${() => go(data.previous)}>← ${words.table.older} <kbd>[</kbd></button><button type="button" disabled=${!data.next} onClick=${() => go(data.next)}>${words.table.newer} → <kbd>]</kbd></button>`}
        ${data && may('/entries') && html`<button type="button" onClick=${() => setDialog('again')}>${text.again}</button>`}${data && may('/entries/delete') && html`<button type="button" onClick=${() => setDialog('delete')}>${text.delete}</button>`}</div></div>
    <${Loaded} from=${found}>${(/** @type {any} */ entry) => html`
      <p class="soft">${timeOfId(id) !== null && html`${text.added} <${Moment} ms=${timeOfId(id)} exact=${true} /> (<${Ago} ms=${timeOfId(id)} /> ${text.ago}) · `}${entry.fields.length} ${entry.fields.length === 1 ? text.field : text.fields}
        ${entry.traceparent && html` · ${text.trace} <code><${Text} text=${entry.traceparent} /></code> <${CopyButton} text=${entry.traceparent} />`}</p>
      <${Life} groups=${entry.groups ?? []} stream=${stream} />
      ${entry.dead_letter && html`<${Letter} letter=${entry.dead_letter} dlq=${stream} />`}
      <${Panel} title=${text.fieldsTitle}><${FieldsView} fields=${entry.fields} form=${form} onForm=${(/** @type {string} */ as) => setQuery({ as: as === 'auto' ? null : as }, { replace: true })}
        raw=${(/** @type {any} */ field, /** @type {number} */ nth) => apiUrl('/entry/raw', { stream, id, ...field, nth: nth || null })} /><//>
      ${dialog === 'again' && html`<${AddDialog} stream=${stream} fields=${texts(entry.fields)} onClose=${() => setDialog(null)} />`}
      ${dialog === 'delete' && html`<${DeleteDialog} stream=${stream} ids=${[id]} onClose=${() => setDialog(null)} onDone=${() => open('stream', { s: stream })} />`}`}<//>
    <${CliLine} line=${commands(status.value?.place ?? '').entries(stream, { from: id, count: 1 })} />`;
}

/** Returns whether the entry can be read again and again: its life changes, its fields come along. @param {[string, any][]} fields */
const isSmall = (fields) => fields.reduce((sum, [, value]) => sum + (value.text ?? value.hex ?? '').length, 0) < SMALL_CHARACTERS;

/** Returns whether every group has read and acknowledged the entry. @param {any[]} groups */
const isFinished = (groups) => (groups ?? []).length > 0 && groups.every((group) => group.state === 'read');

/** Returns the fields that a form can show: texts that are whole. @param {[string, any][]} fields @returns {[string, string][]} */
const texts = (fields) => fields.filter(([, value]) => value.text !== undefined && !value.cut).map(([name, value]) => [name, value.text]);

/** What each group did with the entry. @param {{ groups: any[], stream: string }} props */
function Life({ groups, stream }) {
  if (groups.length === 0) return html`<p class="note">${text.noGroups}</p>`;
  return html`<${Panel} title=${text.life}><ul class="life">${groups.map((each) => html`<li key=${each.group}>
    <${Link} page="group" query=${{ s: stream, g: each.group }} class="strong"><${Name} name=${each.group} max=${40} /><//>
    <span class=${`state ${each.state}`}>${text.states[/** @type {'read'} */ (each.state)] ?? each.state}</span>
    ${each.state === 'pending' && html`<span>${each.consumer ? html`${text.by} <${Link} page="pending" query=${{ s: stream, g: each.group, c: each.consumer }}><${Name} name=${each.consumer} max=${40} /><//>` : text.released}</span>
      ${each.idle_ms !== null && each.idle_ms !== undefined && html`<span>${text.idle} <${Duration} ms=${each.idle_ms} /></span>`}
      <span><${Count} value=${each.deliveries} /> ${each.deliveries === 1 ? text.delivery : text.deliveries}</span>
      ${each.due_at_ms && html`<span>${text.due} <${Moment} ms=${each.due_at_ms} /></span>`}`}
    ${each.error && html`<span class="bad-text"><${Text} text=${each.error} /></span>`}
  </li>`)}</ul><//>`;
}

/** Why a message died. @param {{ letter: any, dlq: string }} props */
function Letter({ letter, dlq }) {
  const rows = /** @type {[string, any][]} */ ([
    [text.letter.reason, letter.reason && html`<strong><${Text} text=${letter.reason} /></strong>`],
    [text.letter.error, letter.error && html`<span class="bad-text"><${Text} text=${letter.error} keepLines=${true} /></span>`],
    [text.letter.errorType, letter.error_type && html`<code><${Text} text=${letter.error_type} /></code>`],
    [text.letter.origin, letter.stream && letter.origin && html`<${Link} page="entry" query=${{ s: letter.stream, id: letter.origin }}><code>${letter.origin}</code> ${text.of} <${Name} name=${letter.stream} max=${48} /><//>`],
    [text.letter.group, letter.group && html`<${Link} page="group" query=${{ s: letter.stream, g: letter.group }}><${Name} name=${letter.group} max=${48} /><//>`],
    [text.letter.consumer, letter.consumer && html`<${Name} name=${letter.consumer} max=${48} />`],
    [text.letter.deliveries, letter.deliveries && html`<${Count} value=${letter.deliveries} />`],
    [text.letter.firstSeen, letter.first_seen_ms && html`<${Moment} ms=${letter.first_seen_ms} />`],
    [text.letter.died, letter.dead_at_ms && html`<${Moment} ms=${letter.dead_at_ms} />`],
    [text.letter.redrives, html`<${Count} value=${letter.redrives} />`],
  ]);
  return html`<${Panel} title=${text.letter.title} actions=${letter.stream && html`<${Link} page="dlq" query=${{ s: letter.stream, dlq, ids: letter.id }} class="button">${text.letter.redrive}<//>`}>
    <dl class="properties">${rows.filter(([, value]) => value).map(([label, value]) => html`<dt key=${label}>${label}</dt><dd>${value}</dd>`)}</dl><//>`;
}
