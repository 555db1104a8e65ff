// @ts-check
/** The page of a stream: its size and rate, its groups, and its entries. */

import { useGet } from '../api.js';
import { commands } from '../cli.js';
import { timeOfId } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { useKeys } from '../keys.js';
import { status, useLive, watchOf } from '../live.js';
import { open } from '../router.js';
import { words } from '../words.js';
import { useMay } from '../ui/action.js';
import { Ago, CliLine, Count, Fact, Link, Loaded, Name, Panel, Rate, Unknown } from '../ui/parts.js';
import { useCommands } from '../ui/palette.js';
import { DataTable, useLocalTable } from '../ui/table.js';
import { bytes } from '../format.js';
import { GROUP_COLUMNS } from './overview.js';
import { Delayed } from './delayed.js';
import { AddDialog, CreateGroupDialog, TrimDialog } from './stream-actions.js';
import { PartitionOf, StreamPartitions } from './partitions.js';
import { StreamBrowser } from './stream-browser.js';
import { PolicyFacts } from './policy.js';

const text = words.stream;
const COLUMNS = GROUP_COLUMNS.filter(({ key }) => key !== 'name' && key !== 'in');

/** @param {{ query: URLSearchParams }} props */
export function Stream({ query }) {
  const stream = query.get('s') ?? '';
  const first = useGet('/stream', { stream });
  const [live, setLive] = useState(/** @type {any} */ (null));
  const [dialog, setDialog] = useState(/** @type {string | null} */ (null));
  useEffect(() => setLive(null), [stream]);
  useLive(watchOf('stream', { stream }), { stream: (data) => setLive((/** @type {any} */ old) => ({ ...old, ...data })) });
  const [version, setVersion] = useState(0);
  const changed = () => { first.reload(); setVersion(version + 1); };
  // The actions of a logical stream are those of its partitions.
  const isLogical = first.data ? first.data.partitions !== null : null;
  const may = useMay();
  const actions = [{ key: 'a', id: 'add', path: '/entries', text: text.add }, { key: '', id: 'group', path: '/groups', text: text.createGroup }, { key: '', id: 'trim', path: '/stream/trim', text: text.trim }]
    .filter(({ path }) => isLogical === false && may(path));
  useKeys(isLogical !== false ? {} : { t: () => open('tail', { s: stream }), ...(may('/entries') ? { a: () => setDialog('add') } : {}) });
  useCommands(isLogical !== false ? [] : [{ text: text.tail, run: () => open('tail', { s: stream }), keys: 't' }, ...actions.map(({ id, text: label, key }) => ({ text: label, run: () => setDialog(id), keys: key || undefined }))]);
  const tab = query.get('tab');
  const close = () => setDialog(null);
  const place = status.value?.place ?? '';
  return html`<div class="page-head"><h1><${Name} name=${stream} /></h1>
      <div class="actions">${isLogical === false && html`<${Link} page="tail" query=${{ s: stream }} class="button">${text.tail}<//>`}
        ${actions.map(({ id, text: label }) => html`<button type="button" key=${id} class=${id === 'add' ? 'primary' : undefined} onClick=${() => setDialog(id)}>${label}</button>`)}</div></div>
    <${Loaded} from=${first}>${(/** @type {any} */ loaded) => {
      const data = { ...loaded, ...live };
      return html`<${PartitionOf} data=${data} />
        <${StreamFacts} data=${data} />
        <${PolicyFacts} policy=${data.policy} />
        <${Panel} class="table-panel" title=${text.groups}><${GroupsTable} rows=${data.group_list ?? []} /><//>
        ${data.partitions !== null && html`<${StreamPartitions} rows=${data.partitions} missing=${data.missing_partitions ?? []} />`}`;
    }}<//>
    ${isLogical === false && html`<${Tabs} stream=${stream} tab=${tab} />`}
    ${isLogical !== false ? null : tab === 'delayed' ? html`<${Delayed} stream=${stream} query=${query} />` : html`<${StreamBrowser} stream=${stream} query=${query} version=${version} />`}
    <${CliLine} line=${commands(place).streamInfo(stream)} />
    ${dialog === 'add' && html`<${AddDialog} stream=${stream} onClose=${close} />`}
    ${dialog === 'group' && html`<${CreateGroupDialog} stream=${stream} onClose=${close} onDone=${first.reload} />`}
    ${dialog === 'trim' && html`<${TrimDialog} stream=${stream} onClose=${close} onDone=${changed} />`}`;
}

/** Chooses between the entries and the delayed messages, if the store can delay messages. @param {{ stream: string, tab: string | null }} props */
function Tabs({ stream, tab }) {
  if (status.value?.capabilities?.delayed_entries !== true && tab === null) return null;
  const each = (/** @type {string | null} */ name, /** @type {string} */ label) => html`<${Link} page="stream" query=${{ s: stream, tab: name }} class="button" aria-current=${tab === name ? 'page' : undefined}>${label}<//>`;
  return html`<nav class="tabs" aria-label=${words.delayed.tabs}>${each(null, words.delayed.entriesTab)}${each('delayed', words.delayed.tab)}</nav>`;
}

/** @param {{ data: any }} props */
function StreamFacts({ data }) {
  const delayed = data.delayed?.count ?? null;
  return html`<dl class="facts">
    <${Fact} label=${text.entries}><${Count} value=${data.length} short=${true} /><//>
    <${Fact} label=${text.in}><${Rate} value=${data.rates?.in} unit=${true} /><//>
    <${Fact} label=${text.memory}>${data.memory_bytes === null || data.memory_bytes === undefined ? html`<${Unknown} why=${text.memoryUnknown} />` : html`<span title=${`${data.memory_bytes} B`}>${bytes(data.memory_bytes)}</span>`}<//>
    <${Fact} label=${text.oldest}><${Ago} ms=${data.first_entry ? timeOfId(data.first_entry) : null} why=${text.noEntries} /><//>
    <${Fact} label=${text.newest}><${Ago} ms=${data.last_entry ? timeOfId(data.last_entry) : null} why=${text.noEntries} /><//>
    <${Fact} label=${text.groupCount}><${Count} value=${(data.group_list ?? []).length} /><//>
    <${Fact} label=${text.dead} tone=${data.dead_letters > 0 ? 'warn' : ''} page="dlq" query=${data.partitions === null ? { s: data.stream } : { of: data.stream }}><${Count} value=${data.dead_letters} short=${true} /><//>
    ${delayed > 0 && html`<${Fact} label=${text.delayed} page="stream" query=${{ s: data.stream, tab: 'delayed' }}><${Count} value=${delayed} short=${true} /><//>`}
  </dl>`;
}

/** @param {{ rows: any[] }} props */
function GroupsTable({ rows }) {
  const shown = rows.filter((row) => row.group !== null);
  const table = useLocalTable({ rows: shown, columns: COLUMNS, rowKey: (row) => row.key ?? row.group, prefix: 'g', first: ['health', true] });
  return html`<${DataTable} caption=${text.groups} ...${table.props} rowClass=${(/** @type {any} */ row) => row.health ?? ''} empty=${text.noGroups} />`;
}
