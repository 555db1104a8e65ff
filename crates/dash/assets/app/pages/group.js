// @ts-check
/** The page of a group: is it well and why, when will it have caught up, who works on it, and how it was in the last hour. */

import { useGet } from '../api.js';
import { commands } from '../cli.js';
import { duration, rate } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { useKeys } from '../keys.js';
import { status, useLive, watchOf } from '../live.js';
import { open } from '../router.js';
import { words } from '../words.js';
import { useMay } from '../ui/action.js';
import { CliLine, Count, Duration, Fact, Health, Link, Loaded, Moment, Name, Panel, Rate, Text } from '../ui/parts.js';
import { useCommands } from '../ui/palette.js';
import { RemoveConsumerDialog, RemoveGroupDialog } from './group-actions.js';
import { GroupCharts } from './group-charts.js';
import { Consumers, Histogram } from './group-parts.js';
import { GroupPartitions, PartitionOf } from './partitions.js';
import { PolicyFacts } from './policy.js';

const text = words.group;

/** @param {{ query: URLSearchParams }} props */
export function Group({ query }) {
  const stream = query.get('s') ?? '';
  const group = query.get('g') ?? '';
  const here = { s: stream, g: group };
  const first = useGet('/group', { stream, group });
  const [live, setLive] = useState(/** @type {any} */ (null));
  const [dialog, setDialog] = useState(/** @type {{ kind: string, consumer?: any } | null} */ (null));
  useEffect(() => setLive(null), [stream, group]);
  useLive(watchOf('group', { stream, group }), { group: (data) => setLive((/** @type {any} */ old) => ({ ...old, ...data })) });
  // The actions of a logical stream are those of its partitions.
  const isLogical = first.data ? first.data.partitions !== null : null;
  const may = useMay();
  const [mayReset, mayRemove, mayRemoveConsumer] = ['/group/reset', '/group/remove', '/consumer/remove'].map((path) => isLogical === false && may(path));
  const places = [['pending', text.toPending], ['dlq', text.toDead], ['tail', text.toTail]];
  useKeys(isLogical === false ? { t: () => open('tail', here) } : {});
  useCommands([
    ...(isLogical === false ? places : []).map(([page, label]) => ({ text: label, run: () => open(page, here) })),
    ...(mayReset ? [{ text: text.reset, run: () => open('group/reset', here) }] : []),
    ...(mayRemove ? [{ text: text.remove, run: () => setDialog({ kind: 'remove' }) }] : []),
  ]);
  const close = () => setDialog(null);
  return html`<div class="page-head">
      <h1><${Link} page="stream" query=${{ s: stream }}><${Name} name=${stream} max=${48} /><//> <span class="crumbs">/</span> <${Name} name=${group} max=${48} /></h1>
      ${first.data && html`<${Health} health=${(live ?? first.data).health} />`}
      <div class="actions">${isLogical === false && html`<${Link} page="tail" query=${here} class="button">${text.toTail}<//>`}
        ${mayReset && html`<${Link} page="group/reset" query=${here} class="button">${text.reset}<//>`}${mayRemove && html`<button type="button" onClick=${() => setDialog({ kind: 'remove' })}>${text.remove}</button>`}</div></div>
    <${Loaded} from=${first}>${(/** @type {any} */ loaded) => {
      const data = { ...loaded, ...live };
      const logical = data.partitions !== null;
      return html`<${PartitionOf} data=${data} group=${group} />
        <${Verdict} data=${data} here=${here} />
        <${GroupFacts} data=${data} here=${here} />
        <${GroupCharts} stream=${stream} group=${group} range=${query.get('t') ?? '1h'} atMs=${data.at_ms ?? Date.now()} />
        ${logical && html`<${GroupPartitions} rows=${data.partitions} group=${group} worst=${data.worst_partition} />`}
        <${Panel} class="table-panel" title=${text.consumers} actions=${!logical && html`<${Link} page="pending" query=${here} class="button small">${text.allPending}<//>`}>
          <${Consumers} data=${data} here=${here} onRemove=${mayRemoveConsumer ? (/** @type {any} */ consumer) => setDialog({ kind: 'consumer', consumer }) : null} /><//>
        ${!logical && html`<${Histogram} data=${data} here=${here} />`}
        <${PolicyFacts} policy=${data.policy} />
        ${dialog?.kind === 'consumer' && html`<${RemoveConsumerDialog} stream=${stream} group=${group} consumer=${dialog.consumer} consumers=${data.consumers} onClose=${close} onDone=${first.reload} />`}`;
    }}<//>
    <${CliLine} line=${commands(status.value?.place ?? '').groupDescribe(stream, group)} />
    ${dialog?.kind === 'remove' && html`<${RemoveGroupDialog} stream=${stream} group=${group} onClose=${close} onDone=${() => open('stream', { s: stream })} />`}`;
}

/** Says when the group will have read everything. @param {any} data */
function etaSentence(data) {
  switch (data.eta) {
    case 'caught_up': return text.caughtUp;
    case 'at': return text.at(duration(data.eta_ms));
    case 'never': return data.rates?.lag > 0 ? text.neverGrows(rate(data.rates.lag)) : text.never;
    default: return data.lag_exact === false ? text.etaInexact : text.etaUnknown;
  }
}

/** Where somebody can act on a finding. @param {any} finding @param {any} here @param {boolean} logical @returns {[page: string, query: any, label: string] | null} */
function placeOf({ code, consumer }, here, logical) {
  if (logical && code !== 'dead_letters') return null;
  switch (code) {
    case 'consumer_idle': return ['pending', { ...here, c: consumer }, text.toPending];
    case 'pending_idle': case 'stuck': return ['pending', { ...here, stuck: '1' }, text.toPending];
    case 'dead_letters': return ['dlq', logical ? { of: here.s } : { s: here.s, group: here.g }, text.toDead];
    case 'consumers': case 'worker_late': return ['workers', {}, text.toWorkers];
    default: return null;
  }
}

/** The health in sentences, each with where to act, and what the command line would do. @param {{ data: any, here: any }} props */
function Verdict({ data, here }) {
  const doctor = /** @type {any[]} */ (data.doctor ?? []);
  const known = new Set(data.findings?.map((/** @type {any} */ finding) => finding.code));
  const findings = [...(data.findings ?? []), ...doctor.filter((finding) => !known.has(finding.code))];
  const rank = (/** @type {any} */ finding) => ['critical', 'degraded', 'ok'].indexOf(finding.health);
  findings.sort((a, b) => rank(a) - rank(b));
  const waysOut = [...new Set(doctor.filter((finding) => finding.health !== 'ok').map((finding) => finding.way_out))].filter(Boolean);
  return html`<section class=${`answer ${data.health}`}>
    <p class="verdict">${etaSentence(data)}</p>
    ${findings.length > 0 && html`<ul class="reasons">${findings.map((finding, at) => {
      const place = placeOf(finding, here, data.partitions !== null);
      return html`<li key=${at}>${finding.health === 'ok' ? html`<span class="health" aria-hidden="true"><span class="sign">·</span></span>` : html`<${Health} health=${finding.health} brief=${true} />`}
        <span><${Text} text=${finding.text} />${finding.since_ms && html` <span class="soft">${text.since} <${Moment} ms=${finding.since_ms} /></span>`}</span>
        ${place && html`<${Link} page=${place[0]} query=${place[1]}>${place[2]}<//>`}</li>`;
    })}</ul>`}
    ${waysOut.length > 0 && html`<details class="more-info"><summary>${text.waysOut}</summary><ul>${waysOut.map((way) => html`<li key=${way}><${Text} text=${way} /></li>`)}</ul></details>`}
  </section>`;
}

/** @param {{ data: any, here: any }} props */
function GroupFacts({ data, here }) {
  const logical = data.partitions !== null;
  const pending = logical ? undefined : 'pending';
  return html`<dl class="facts">
    <${Fact} label=${words.overview.lag} title=${words.overview.lagHint}><${Count} value=${data.lag} exact=${data.lag_exact} short=${true} why=${words.overview.lagUnknown} /><//>
    <${Fact} label=${text.lagChange}><${Rate} value=${data.rates?.lag} unit=${true} signed=${true} /><//>
    <${Fact} label=${words.overview.oldest} title=${words.overview.oldestHint}><${Duration} ms=${data.oldest_unread_ms} exact=${data.oldest_unread_exact} why=${words.overview.oldestNone} /><//>
    <${Fact} label=${words.overview.in}><${Rate} value=${data.rates?.in} unit=${true} /><//>
    <${Fact} label=${words.overview.out}><${Rate} value=${data.rates?.out} unit=${true} /><//>
    <${Fact} label=${words.overview.pending} page=${pending} query=${here} title=${words.overview.pendingHint}><${Count} value=${data.pending} short=${true} /><//>
    <${Fact} label=${words.overview.stuck} tone=${data.stuck > 0 ? 'bad' : ''} page=${pending} query=${{ ...here, stuck: '1' }} title=${words.overview.stuckHint}><${Count} value=${data.stuck} short=${true} /><//>
    <${Fact} label=${text.waiting} title=${text.waitingHint}><${Count} value=${data.waiting} short=${true} /><//>
    <${Fact} label=${words.overview.dead} tone=${data.dead_letters > 0 ? 'warn' : ''} page="dlq" query=${logical ? { of: here.s } : { s: here.s, group: here.g }}><${Count} value=${data.dead_letters} short=${true} /><//>
    <${Fact} label=${text.missed} tone=${data.missed > 0 ? 'bad' : ''} title=${text.missedHint}><${Count} value=${data.missed} exact=${data.missed_exact} short=${true} why=${text.missedUnknown} /><//>
  </dl>`;
}
