// @ts-check
/** The server of the store: memory, durability, the last hour, slow commands, clients, statistics of commands. */

import { useGet } from '../api.js';
import { commands } from '../cli.js';
import { bytes, micros, rateNumber } from '../format.js';
import { html, useState } from '../html.js';
import { useLive } from '../live.js';
import { words } from '../words.js';
import { useMay } from '../ui/action.js';
import { Chart } from '../ui/chart.js';
import { useCommands } from '../ui/palette.js';
import { Ago, CliLine, Count, Duration, Fact, Link, Loaded, Panel, Rate, Text, Unknown } from '../ui/parts.js';
import { status } from '../live.js';
import { FsyncDialog, ResetSlowLogDialog, SnapshotDialog } from './server-actions.js';
import { Clients, Commands, Facts, SlowLog } from './server-parts.js';

const text = words.server;

export function Server() {
  useLive('jobs');
  const found = useGet('/server', {}, { every_ms: 5000 });
  const [dialog, setDialog] = useState(/** @type {'snapshot' | 'fsync' | 'slow' | null} */ (null));
  const has = found.data?.facts !== null && found.data !== null;
  const slow = useGet(has ? '/slowlog' : null, { count: 200 }, { every_ms: 5000 });
  const may = useMay();
  const mayReset = has && may('/server/slowlog-reset');
  const actions = /** @type {['snapshot' | 'fsync', string, string][]} */ ([['snapshot', text.snapshotNow, '/server/snapshot'], ['fsync', text.changeFsync, '/server/config']])
    .filter(([, , path]) => has && may(path));
  useCommands([...actions.map(([id, label]) => ({ text: label, run: () => setDialog(id) })), ...(mayReset ? [{ text: text.resetSlowTitle, run: () => setDialog('slow') }] : [])]);
  const close = () => setDialog(null);
  const reload = () => {
    found.reload();
    slow.reload();
  };
  return html`<div class="page-head"><h1>${text.title}</h1>${found.data?.summary?.product && html`<span class="soft"><${Text} text=${found.data.summary.product} /></span>`}
      <div class="actions"><${Link} page="audit" class="button">${text.toAudit}<//>
        ${actions.map(([id, label]) => html`<button type="button" key=${id} onClick=${() => setDialog(id)}>${label}</button>`)}</div></div>
    <${Loaded} from=${found}>${(/** @type {any} */ data) => (data.facts === null ? html`<${NoServer} />` : html`
      ${data.denied && html`<p class="note warn">${text.denied} <${Text} text=${String(data.denied)} /></p>`}
      <${ServerFacts} summary=${data.summary} slow=${slow.data} />
      ${data.series && html`<${Charts} series=${data.series} />`}
      <${SlowLog} from=${slow} settings=${data.settings} onReset=${mayReset ? () => setDialog('slow') : null} />
      <${Commands} rows=${data.commands ?? []} />
      <${Clients} />
      <${Facts} facts=${data.facts} settings=${data.settings} />
      ${dialog === 'fsync' && html`<${FsyncDialog} now=${data.summary.appendfsync} onClose=${close} onDone=${reload} />`}`)}<//>
    ${has && html`<${CliLine} line=${commands(status.value?.place ?? '').server(['info'])} />`}
    ${dialog === 'snapshot' && html`<${SnapshotDialog} onClose=${close} onDone=${reload} />`}
    ${dialog === 'slow' && html`<${ResetSlowLogDialog} onClose=${close} onDone=${reload} />`}`;
}

/** Says why there is nothing to see: an embedded store runs inside a program. */
function NoServer() {
  return html`<${Panel} title=${text.noServer}><p>${text.noServerText}</p><//>`;
}

/** @param {{ summary: any, slow: any[] | null }} props */
function ServerFacts({ summary, slow }) {
  const size = (/** @type {number | null} */ value) => (value === null ? html`<${Unknown} why=${text.unknownHere} />` : html`<span title=${`${value.toLocaleString()} B`}>${bytes(value)}</span>`);
  const jump = (/** @type {string} */ id, /** @type {any} */ value) => html`<a href=${`#${id}`}>${value}</a>`;
  const memory = [summary.memory_peak_bytes !== null && text.memoryPeak(bytes(summary.memory_peak_bytes)), summary.memory_limit_bytes !== null && text.memoryLimit(bytes(summary.memory_limit_bytes))].filter(Boolean).join(', ');
  return html`<dl class="facts roomy">
    <${Fact} label=${text.up}><${Duration} ms=${summary.uptime_s === null ? null : summary.uptime_s * 1000} why=${text.unknownHere} /><//>
    <${Fact} label=${text.memory} title=${memory}>${size(summary.memory_bytes)}<//>
    <${Fact} label=${text.clients}>${jump('clients', html`<${Count} value=${summary.clients} why=${text.unknownHere} />`)}<//>
    <${Fact} label=${text.blocked} title=${text.blockedHint}>${jump('clients', html`<${Count} value=${summary.blocked} why=${text.unknownHere} />`)}<//>
    <${Fact} label=${text.ops}>${jump('commands', html`<${Rate} value=${summary.ops_per_s} unit=${true} />`)}<//>
    <${Fact} label=${text.slow} tone=${slow !== null && slow.length > 0 ? 'warn' : ''}>${jump('slow', html`<${Count} value=${slow?.length} />`)}<//>
    <${Fact} label=${text.log}>${size(summary.log_bytes)}<//>
    <${Fact} label=${text.snapshot} tone=${summary.last_snapshot_ok === false ? 'bad' : ''}>${summary.last_snapshot_ok === false ? text.snapshotFailed : html`<${Ago} ms=${summary.last_snapshot_ms} why=${text.noSnapshot} />`}<//>
    <${Fact} label=${text.fsync}>${summary.appendfsync ?? html`<${Unknown} why=${text.unknownHere} />`}<//>
    <${Fact} label=${text.syncAverage} title=${text.syncHint}>${summary.sync_avg_ms === null ? html`<${Unknown} why=${text.unknownHere} />` : micros(summary.sync_avg_ms * 1000)}<//>
    <${Fact} label=${text.syncs} title=${text.syncHint}>${summary.syncs_per_s === null ? html`<${Unknown} why=${text.unknownHere} />` : html`<${Rate} value=${summary.syncs_per_s} unit=${true} />`}<//>
  </dl>`;
}

/** @param {{ series: any }} props */
function Charts({ series }) {
  const common = { fromMs: series.from_ms, stepMs: series.step_ms };
  const has = (/** @type {string} */ name) => series[name]?.some((/** @type {number | null} */ value) => value !== null);
  const ms = (/** @type {number | null | undefined} */ value) => (value === null || value === undefined ? '-' : micros(value * 1000));
  // A server that tells the time of its fsyncs has no value for an interval without one.
  const isKnown = has('syncs_per_s');
  const memory = html`<${Chart} title=${text.memoryChart} ...${common} show=${bytes} series=${[{ label: text.memory, values: series.memory_bytes, tone: 'a' }]} />`;
  return html`<${Panel} title=${text.charts}><div class="charts">
      ${isKnown ? html`<${Chart} title=${text.syncChart} ...${common} show=${ms} floor=${0.1} series=${[{ label: text.syncAverage, values: series.sync_ms, tone: 'b' }]} />` : memory}
      <${Chart} title=${text.opsChart} ...${common} show=${rateNumber} series=${[{ label: text.ops, values: series.ops_per_s, tone: 'a' }]} />
    </div>
    ${isKnown ? html`<details class="more-info"><summary>${text.moreCharts}</summary><div class="charts">
        <${Chart} title=${text.syncRateChart} ...${common} show=${rateNumber} series=${[{ label: text.syncs, values: series.syncs_per_s ?? [], tone: 'b' }]} />${memory}
      </div></details>` : html`<p class="hint">${text.noSync}</p>`}<//>`;
}
