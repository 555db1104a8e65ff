// @ts-check
/** The actions of a stream: add a message, create a group, trim, delete entries. */

import { Problem, post } from '../api.js';
import { commands } from '../cli.js';
import { bound, count, counted, parseDuration } from '../format.js';
import { html, useState } from '../html.js';
import { status } from '../live.js';
import { position } from '../positions.js';
import { open } from '../router.js';
import { words } from '../words.js';
import { ActionDialog } from '../ui/action.js';
import { Dialog } from '../ui/dialog.js';
import { CliLine, Choices, Field, Name, ProblemNote } from '../ui/parts.js';
import { say } from '../ui/toasts.js';

const text = words.streamActions;
const place = () => status.value?.place ?? '';
const value = (/** @type {any} */ event) => event.target.value;

/** @param {{ stream: string, fields?: [string, string][], onClose: () => void }} props `fields`: those of an entry to add again */
export function AddDialog({ stream, fields: first, onClose }) {
  const [form, setForm] = useState(/** @type {'fields' | 'json'} */ ('fields'));
  const [fields, setFields] = useState(/** @type {[string, string][]} */ (first ?? [['', '']]));
  const [json, setJson] = useState('{\n  \n}');
  const [more, setMore] = useState({ delay: '', producer: '', iid: '' });
  const [problem, setProblem] = useState(/** @type {Problem | null} */ (null));
  const [busy, setBusy] = useState(false);
  const { sent, error } = form === 'json' ? fromJson(json) : { sent: fields.filter(([name, text]) => name !== '' || text !== ''), error: null };
  const delay = more.delay === '' ? null : parseDuration(more.delay);
  const badDelay = more.delay !== '' && delay === null;
  const halfIid = (more.producer === '') !== (more.iid === '');
  const ready = sent !== null && sent.length > 0 && !badDelay && !halfIid && !busy;
  const set = (/** @type {number} */ at, /** @type {0 | 1} */ part, /** @type {string} */ to) =>
    setFields(fields.map((pair, index) => (index === at ? /** @type {[string, string]} */ (part === 0 ? [to, pair[1]] : [pair[0], to]) : pair)));
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!ready) return;
    setBusy(true);
    setProblem(null);
    try {
      const answer = await post('/entries', { stream, fields: sent, ...(delay ? { delay_ms: delay } : {}), ...(more.iid ? { producer: more.producer, iid: more.iid } : {}) });
      onClose();
      if (answer.id && !delay) {
        say(text.added(answer.id));
        open('entry', { s: stream, id: answer.id });
      } else say(text.delayed);
    } catch (failure) {
      setProblem(/** @type {Problem} */ (failure));
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${html`${text.addTo} <${Name} name=${stream} max=${40} />`} onClose=${onClose} class="action">
    <form onSubmit=${submit}>
      <${Choices} label=${text.form} value=${form} choices=${text.forms} onChange=${setForm} />
      ${form === 'fields' ? html`<div class="pairs">
          ${fields.map(([name, text_], at) => html`<div class="pair-row" key=${at}>
            <input aria-label=${text.fieldName} placeholder=${text.fieldName} value=${name} data-focus=${at === 0} spellcheck=${false} onInput=${(/** @type {any} */ event) => set(at, 0, value(event))} />
            <textarea aria-label=${text.fieldValue} placeholder=${text.fieldValue} rows="1" spellcheck=${false} onInput=${(/** @type {any} */ event) => set(at, 1, value(event))} value=${text_}></textarea>
            <button type="button" class="plain" aria-label=${text.removeField} disabled=${fields.length === 1} onClick=${() => setFields(fields.filter((_, index) => index !== at))}>×</button></div>`)}
          <button type="button" class="small" onClick=${() => setFields([...fields, ['', '']])}>${text.addField}</button></div>`
        : html`<${Field} label=${text.jsonLabel} hint=${text.jsonHint} error=${error}><textarea rows="8" spellcheck=${false} value=${json} onInput=${(/** @type {any} */ event) => setJson(value(event))}></textarea><//>`}
      <details class="more-info"><summary>${text.more}</summary><div class="form-row">
        <${Field} label=${text.delay} error=${badDelay ? text.badDuration : null}><input value=${more.delay} placeholder="10m" onInput=${(/** @type {any} */ event) => setMore({ ...more, delay: value(event) })} /><//>
        <${Field} label=${text.producer}><input value=${more.producer} spellcheck=${false} onInput=${(/** @type {any} */ event) => setMore({ ...more, producer: value(event) })} /><//>
        <${Field} label=${text.iid} error=${halfIid ? text.halfIid : null}><input value=${more.iid} spellcheck=${false} onInput=${(/** @type {any} */ event) => setMore({ ...more, iid: value(event) })} /><//>
      </div></details>
      ${problem && html`<${ProblemNote} problem=${problem} />`}
      ${sent && sent.length > 0 && html`<${CliLine} line=${commands(place()).add(stream, sent, { producer: more.producer, iid: more.iid, delay_ms: delay })} />`}
      <footer class="actions"><button type="button" onClick=${onClose}>${words.action.cancel}</button><button type="submit" class="primary" disabled=${!ready}>${text.addButton}</button></footer>
    </form>
  <//>`;
}

/** Turns a JSON object into fields: texts stay as they are, other values are written as JSON. @param {string} json @returns {{ sent: [string, string][] | null, error: string | null }} */
function fromJson(json) {
  if (json.replace(/[{}\s]/g, '') === '') return { sent: null, error: null };
  let parsed;
  try {
    parsed = JSON.parse(json);
  } catch (error) {
    return { sent: null, error: String(/** @type {Error} */ (error).message) };
  }
  if (parsed === null || typeof parsed !== 'object' || Array.isArray(parsed)) return { sent: null, error: text.notObject };
  return { sent: Object.entries(parsed).map(([name, each]) => [name, typeof each === 'string' ? each : JSON.stringify(each)]), error: null };
}

/** @param {{ stream: string, onClose: () => void, onDone: () => void }} props */
export function CreateGroupDialog({ stream, onClose, onDone }) {
  const [group, setGroup] = useState('');
  const [start, setStart] = useState('earliest');
  const [id, setId] = useState('');
  const [problem, setProblem] = useState(/** @type {Problem | null} */ (null));
  const ready = group !== '' && (start !== 'id' || /^\d+(-\d+)?$/.test(id));
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!ready) return;
    try {
      const answer = await post('/groups', { stream, group, start: start === 'id' ? { id } : start });
      say(answer?.created === false ? text.groupExists(group) : text.groupCreated(group));
      onClose();
      onDone();
    } catch (failure) {
      setProblem(/** @type {Problem} */ (failure));
    }
  };
  return html`<${Dialog} title=${html`${text.createGroup} <${Name} name=${stream} max=${40} />`} onClose=${onClose} class="action">
    <form onSubmit=${submit}>
      <${Field} label=${text.groupName}><input value=${group} data-focus spellcheck=${false} onInput=${(/** @type {any} */ event) => setGroup(value(event))} /><//>
      <fieldset><legend>${text.start}</legend>${text.starts.map(([each, label]) => html`<label class="check" key=${each}><input type="radio" name="start" checked=${start === each} onChange=${() => setStart(each)} /> ${label}</label>`)}</fieldset>
      ${start === 'id' && html`<${Field} label=${text.startId}><input value=${id} placeholder="1731664200000-0" onInput=${(/** @type {any} */ event) => setId(value(event))} /><//>`}
      ${problem && html`<${ProblemNote} problem=${problem} />`}
      ${group !== '' && html`<${CliLine} line=${commands(place()).groupCreate(stream, group, start === 'id' ? id : start)} />`}
      <footer class="actions"><button type="button" onClick=${onClose}>${words.action.cancel}</button><button type="submit" class="primary" disabled=${!ready}>${text.create}</button></footer>
    </form>
  <//>`;
}

/** @param {{ stream: string, onClose: () => void, onDone: () => void }} props */
export function TrimDialog({ stream, onClose, onDone }) {
  const [by, setBy] = useState('length');
  const [length, setLength] = useState('');
  const [from, setFrom] = useState('');
  const [keepUnread, setKeepUnread] = useState(true);
  const start = from === '' ? null : position(from, Date.now());
  const minId = start === null || start === '-' || start === '+' ? null : start.startsWith('t') ? `${Math.floor(Number(start.slice(1)) / 1000) * 1000}-0` : start;
  const max = /^\d+$/.test(length.replaceAll(',', '')) ? Number(length.replaceAll(',', '')) : null;
  const limit = by === 'length' ? (max === null ? null : { max_length: max }) : minId === null ? null : { min_id: minId };
  const form = html`<${Choices} label=${text.trimBy} value=${by} choices=${text.trimBys} onChange=${setBy} />
    ${by === 'length' ? html`<${Field} label=${text.maxLength}><input inputmode="numeric" value=${length} data-focus onInput=${(/** @type {any} */ event) => setLength(value(event))} /><//>`
      : html`<${Field} label=${text.minId} hint=${minId ?? text.minIdHint}><input value=${from} placeholder="7d" onInput=${(/** @type {any} */ event) => setFrom(value(event))} /><//>`}
    <label class="check"><input type="checkbox" checked=${keepUnread} onChange=${() => setKeepUnread(!keepUnread)} /> ${text.keepUnread}</label>`;
  return html`<${ActionDialog} title=${html`${text.trim} <${Name} name=${stream} max=${40} />`} path="/stream/trim" body=${limit && { stream, ...limit, keep_unread: keepUnread }} form=${form} onClose=${onClose} onDone=${onDone}
    describe=${(/** @type {any} */ plan) => ({ count: plan.matched, button: text.trimButton(plan.matched, stream), text: html`<${TrimPlan} plan=${plan} />` })}
    done=${(/** @type {any} */ answer) => text.trimmed(answer.removed)} />`;
}

/** What a trim removes, and what groups lose by it. @param {{ plan: any }} props */
function TrimPlan({ plan }) {
  const losses = (plan.groups ?? []).filter((/** @type {any} */ loss) => loss.unread > 0 || loss.pending > 0);
  return html`<p><strong>${plan.exact === false ? '≥' : ''}${counted(plan.matched, words.entry.one, words.entry.many)}</strong> ${text.trimPlan}</p>
    ${losses.length > 0 && html`<ul class="note warn">${losses.map((/** @type {any} */ loss) => html`<li key=${loss.group}><${Name} name=${loss.group} max=${40} /> ${text.loses(bound(loss.unread, loss.unread_exact, '≥'), bound(loss.pending, loss.pending_exact, '≥'))}</li>`)}</ul>`}`;
}

/** @param {{ stream: string, ids: string[], onClose: () => void, onDone: () => void }} props */
export function DeleteDialog({ stream, ids, onClose, onDone }) {
  return html`<${ActionDialog} title=${html`${text.deleteFrom} <${Name} name=${stream} max=${40} />`} path="/entries/delete" body=${{ stream, ids }} onClose=${onClose} onDone=${onDone}
    describe=${(/** @type {any} */ plan) => ({ count: plan.matched, button: text.deleteButton(plan.matched, stream), text: html`<p><strong>${counted(plan.matched, words.entry.one, words.entry.many)}</strong> ${text.deletePlan}</p>${ids.length <= 20 && html`<p class="mono">${ids.join(', ')}</p>`}` })}
    done=${(/** @type {any} */ answer) => text.deleted(count(answer.deleted))} />`;
}
