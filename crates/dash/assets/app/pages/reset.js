// @ts-check
/** Moves a group to another position: seven targets, the position before and after side by side, and who is at work. */

import { Problem, post, useGet } from '../api.js';
import { commands } from '../cli.js';
import { counted, isEntryId, isNumber, parseDuration, parseMoment, timeOfId, utc } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { status, useLive } from '../live.js';
import { printable } from '../printable.js';
import { open, setQuery } from '../router.js';
import { words } from '../words.js';
import { TypeNumber, isConfirmed, useMay } from '../ui/action.js';
import { Ago, CliLine, Count, Field, Link, Loaded, Name, Panel, ProblemNote, useNow } from '../ui/parts.js';
import { say } from '../ui/toasts.js';

const text = words.reset;
/** The positions that need no value. */
const WITHOUT_VALUE = ['earliest', 'latest'];

/** @param {{ query: URLSearchParams }} props */
export function Reset({ query }) {
  const stream = query.get('s') ?? '';
  const group = query.get('g') ?? '';
  const found = useGet('/group', { stream, group });
  useLive('jobs');
  const mayAct = useMay()('/group/reset');
  const title = html`<div class="page-head"><h1>${text.title} <${Link} page="stream" query=${{ s: stream }}><${Name} name=${stream} max=${40} /><//> <span class="crumbs">/</span> <${Link} page="group" query=${{ s: stream, g: group }}><${Name} name=${group} max=${40} /><//></h1></div>`;
  if (!mayAct) return html`${title}<p class="note">${status.value?.read_only ? words.head.readOnlyTitle : words.action.refused}</p>`;
  return html`${title}<${Loaded} from=${found}>${(/** @type {any} */ data) => html`<${Wizard} stream=${stream} group=${group} data=${data} query=${query} />`}<//>`;
}

/** @param {{ stream: string, group: string, data: any, query: URLSearchParams }} props */
function Wizard({ stream, group, data, query }) {
  const asked = query.get('to') ?? 'ago';
  const kind = text.targets.some(([each]) => each === asked) ? asked : 'ago';
  const value = query.get('v') ?? FIRST[kind] ?? '';
  const setValue = (/** @type {string} */ v) => setQuery({ to: kind, v }, { replace: true });
  const [force, setForce] = useState(false);
  const [plan, setPlan] = useState(/** @type {{ key: string, answer: any, moved: boolean } | null} */ (null));
  const [problem, setProblem] = useState(/** @type {Problem | null} */ (null));
  const [busy, setBusy] = useState(false);
  const { to, error } = target(kind, value);
  const key = JSON.stringify(to);
  // The plan follows the target. A preview changes nothing, so it needs no button.
  useEffect(() => {
    setProblem(null);
    if (to === null) return undefined;
    let isCurrent = true;
    const timer = setTimeout(() => post('/group/reset', { stream, group, to, dry_run: true }).then(
      (answer) => isCurrent && setPlan({ key, answer, moved: false }),
      (failure) => isCurrent && setProblem(failure),
    ), 250);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [key]);
  const current = plan?.key === key ? plan : null;
  const active = /** @type {string[]} */ (current?.answer.active_consumers ?? []).map((name) => printable(name));
  // The number of entries that the group skips, or gets again.
  const moved = current ? Math.abs(current.answer.after.lag - current.answer.before.lag) : 0;
  const [typed, setTyped] = useState('');
  const refused = (active.length > 0 && !force) || !isConfirmed(moved, typed);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!current || refused || busy) return;
    setBusy(true);
    setProblem(null);
    try {
      await post('/group/reset', { stream, group, to, force, preview: current.answer.preview });
      say(text.done(printable(group)));
      open('group', { s: stream, g: group });
    } catch (failure) {
      const refusal = /** @type {Problem} */ (failure);
      if (refusal.code === 'preview_outdated' && refusal.plan) {
        setTyped('');
        setPlan({ key, answer: refusal.plan, moved: true });
      }
      else setProblem(refusal);
    }
    setBusy(false);
  };
  return html`<form class="wizard" onSubmit=${submit}>
    <${Panel} title=${text.target}><fieldset class="targets"><legend class="only-read">${text.target}</legend>
      ${text.targets.map(([each, label]) => html`<label class="check" key=${each}><input type="radio" name="target" checked=${kind === each} onChange=${() => setQuery({ to: each, v: null }, { replace: true })} /> ${label}</label>`)}</fieldset>
      ${!WITHOUT_VALUE.includes(kind) && html`<${Field} label=${text.values[/** @type {'id'} */ (kind)]} hint=${html`<${Hint} kind=${kind} to=${to} />`} error=${error}>
        ${kind === 'group' ? html`<${OtherGroup} stream=${stream} group=${group} value=${value} onChange=${setValue} />` : html`<input key=${kind} value=${value} data-focus autocomplete="off" spellcheck=${false} onInput=${(/** @type {any} */ event) => setValue(event.target.value)} />`}<//>`}
    <//>
    <${Panel} title=${text.effect}>
      ${problem && html`<${ProblemNote} problem=${problem} />`}
      ${current?.moved && html`<p class="note warn">${words.action.moved}</p>`}
      ${current ? html`<${Positions} plan=${current.answer} data=${data} />` : !problem && html`<p class="loading">${to === null ? text.incomplete : words.action.looking}</p>`}
      ${current && html`<p>${current.answer.pending > 0 ? text.stays(counted(current.answer.pending, words.entry.one, words.entry.many)) : text.nothingPending}</p>`}
      ${active.length > 0 && html`<p class="note warn" role="status">${text.active(active.join(', '))}</p>
        <label class="check"><input type="checkbox" checked=${force} onChange=${() => setForce(!force)} /> ${text.force}</label>`}
      ${current && html`<${TypeNumber} number=${moved} typed=${typed} onInput=${setTyped} />`}
      <${CliLine} line=${to === null ? null : commands(status.value?.place ?? '').groupReset(stream, group, to, force)} />
      <footer class="actions actions-bottom"><${Link} page="group" query=${{ s: stream, g: group }} class="button">${words.action.cancel}<//>
        <button type="submit" class="danger" disabled=${!current || refused || busy}>${text.button(printable(group))}</button></footer>
    <//>
  </form>`;
}

/** The value that a target starts with. @type {Record<string, string>} */
const FIRST = { ago: '2h', shift: '-10' };

/** Reads a target. Without `to`, it is incomplete or wrong. @param {string} kind @param {string} value @returns {{ to: Record<string, any> | null, error: string | null }} */
function target(kind, value) {
  const typed = value.trim();
  if (WITHOUT_VALUE.includes(kind)) return { to: { [kind]: true }, error: null };
  if (typed === '') return { to: null, error: null };
  const found = parsed(kind, typed, value);
  return found === null ? { to: null, error: text.errors[/** @type {'id'} */ (kind)] } : { to: found, error: null };
}

/** @param {string} kind @param {string} typed @param {string} value */
function parsed(kind, typed, value) {
  if (kind === 'id') return isEntryId(typed) ? { id: typed } : null;
  if (kind === 'group') return { group: value };
  if (kind === 'shift') return /^[+-]?\d{1,15}$/.test(typed) ? { shift: Number(typed) } : null;
  // A duration stays one, whatever the time is when the plan is made.
  const before = parseDuration(typed);
  if (before !== null) return { ago_ms: before };
  const ms = kind === 'time' ? parseMoment(typed, Date.now()) : null;
  return isNumber(ms) ? { time_ms: Math.max(0, ms) } : null;
}

/** Says which moment a value means, in the visitor's zone and in UTC. @param {{ kind: string, to: Record<string, any> | null }} props */
function Hint({ kind, to }) {
  const now = useNow();
  const ms = to?.time_ms ?? (isNumber(to?.ago_ms) ? now - to.ago_ms : null);
  if (!isNumber(ms)) return text.hints[/** @type {'id'} */ (kind)];
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return `${new Date(ms).toLocaleString()} (${zone}) = ${utc(Math.floor(ms / 1000) * 1000)}`;
}

/** @param {{ stream: string, group: string, value: string, onChange: (name: string) => void }} props */
function OtherGroup({ stream, group, value, onChange }) {
  const found = useGet('/stream', { stream });
  const others = (found.data?.group_list ?? []).filter((/** @type {any} */ each) => each.group !== group);
  return html`<select value=${value} onChange=${(/** @type {any} */ event) => onChange(event.target.value)}><option value="">${text.chooseGroup}</option>
    ${others.map((/** @type {any} */ each) => html`<option key=${each.group} value=${each.group}>${printable(each.group)}</option>`)}</select>`;
}

/** The position before and after, and the difference. @param {{ plan: any, data: any }} props */
function Positions({ plan, data }) {
  const { before, after } = plan;
  const difference = after.lag - before.lag;
  const isExact = before.lag_exact !== false && after.lag_exact !== false;
  const rows = /** @type {[string, any][]} */ ([[text.before, before], [text.after, after]]);
  return html`<div class="json-table positions" tabindex="0"><table><thead><tr><th scope="col"><span class="only-read">${text.position}</span></th><th scope="col">${text.lastDelivered}</th><th scope="col">${text.delivered}</th><th scope="col" class="number">${words.overview.lag}</th></tr></thead>
    <tbody>${rows.map(([label, position]) => html`<tr key=${label}><th scope="row">${label}</th><td class="mono">${position.last_delivered}</td><td><${Ago} ms=${timeOfId(position.last_delivered)} why=${text.noMoment} /></td>
      <td class="number"><${Count} value=${position.lag} exact=${position.lag_exact !== false} /></td></tr>`)}</tbody></table></div>
    <p><strong>${difference === 0 ? text.same : difference > 0 ? text.again(counted(difference, words.entry.one, words.entry.many), isExact) : text.skips(counted(-difference, words.entry.one, words.entry.many), isExact)}</strong>
      ${difference < 0 && ` ${text.skipsHint}`}${data.consumers?.length === 0 && ` ${text.noConsumers}`}</p>`;
}
