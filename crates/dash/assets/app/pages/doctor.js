// @ts-check
/** The findings of the doctor by kind, worst first: what is wrong, since when, what to do, and a link to the page for it. */

import { useGet } from '../api.js';
import { commands } from '../cli.js';
import { count, counted } from '../format.js';
import { findingsText, placeOf } from '../findings.js';
import { html, useEffect, useState } from '../html.js';
import { setQuery } from '../router.js';
import { status, useLive } from '../live.js';
import { words } from '../words.js';
import { Ago, CliLine, CopyButton, Health, Link, Loaded, Moment, Name, Panel, Text } from '../ui/parts.js';
import { FilterBar } from '../ui/table.js';

const text = words.doctor;
/** Findings of one kind on a page, if only this kind is shown. */
const PAGE = 50;

/** @param {{ query: URLSearchParams }} props */
export function Doctor({ query }) {
  useLive('jobs');
  const q = query.get('q') ?? '';
  const code = query.get('code');
  const offset = code === null ? 0 : Number(query.get('offset') ?? 0) || 0;
  const found = useGet('/doctor', { q: q || null, code, offset: offset || null, count: code === null ? null : PAGE }, { every_ms: 5000 });
  const [kept, setKept] = useState(/** @type {any} */ (null));
  useEffect(() => { if (found.data) setKept(found.data); }, [found.data]);
  const total = (/** @type {any} */ data) => data.kinds.reduce((/** @type {number} */ sum, /** @type {any} */ kind) => sum + kind.count, 0);
  return html`<div class="page-head"><h1>${text.title}</h1>
      ${found.data && html`<div class="actions"><${CopyButton} text=${findingsText(found.data.findings)} label=${text.copyText} class="" /><${CopyButton} text=${JSON.stringify(found.data, null, 2)} label=${text.copyJson} class="" /></div>`}</div>
    <${Loaded} from=${{ ...found, data: found.data ?? kept }}>${(/** @type {any} */ data) => html`<${Answer} data=${data} />
      <${Panel} class="table-panel">
        ${(data.kinds.length > 0 || q || code) && html`<${FilterBar} label=${text.filter} value=${q} onInput=${(/** @type {string} */ value) => setQuery({ q: value, offset: null }, { replace: true })} >
          ${code !== null && html`<button type="button" class="small" onClick=${() => setQuery({ code: null, offset: null })}>${text.allKinds}</button>`}<span class="matched">${counted(total(data), text.finding, text.findings)}</span><//>`}
        ${data.kinds.length === 0 && html`<p class="empty">${q || code ? text.noMatch : text.nothing}</p>`}
        ${data.kinds.map((/** @type {any} */ kind) => html`<${Kind} key=${`${kind.health} ${kind.code}`} kind=${kind} findings=${data.findings.filter((/** @type {any} */ each) => each.code === kind.code && each.health === kind.health)} page=${code === null ? null : offset} />`)}<//>
      <${Abilities} data=${data} />`}<//>
    <${CliLine} line=${q ? null : commands(status.value?.place ?? '').doctor(code, offset, PAGE)} />`;
}

/** @param {{ data: any }} props */
function Answer({ data }) {
  const number = (/** @type {string} */ health) => data.kinds.filter((/** @type {any} */ kind) => kind.health === health).reduce((/** @type {number} */ sum, /** @type {any} */ kind) => sum + kind.count, 0);
  // The worst of the kinds that are shown, which come worst first.
  const health = data.kinds[0]?.health ?? 'ok';
  return html`<section class=${`answer ${health}`}><p class="verdict"><${Health} health=${health} brief=${true} /> ${text.answer(number('critical'), number('degraded'), number('ok'))}</p>
    <p class="soft">${text.looked(counted(data.streams, text.stream, text.streams), counted(data.groups, text.group, text.groups))} <${Ago} ms=${data.at_ms} /> ${words.entry.ago}</p></section>`;
}

/** The findings of one kind: some of them, or a page of them. @param {{ kind: any, findings: any[], page: number | null }} props `page`: the number of findings before the page */
function Kind({ kind, findings, page }) {
  const rest = kind.count - kind.shown;
  const to = (/** @type {number} */ offset) => () => setQuery({ code: kind.code, offset: offset || null });
  return html`<section class="kind"><h2 class="kind-head"><code>${kind.code}</code> <span class="soft">${count(kind.count)}</span></h2>
    <ul class="findings">${findings.map((finding) => html`<${Finding} key=${finding.id} finding=${finding} />`)}</ul>
    ${page === null && rest > 0 && html`<p class="pad"><button type="button" class="small" onClick=${to(0)}>${text.more(rest)}</button></p>`}
    ${page !== null && kind.count > PAGE && html`<nav class="pager" aria-label=${`${kind.health} ${kind.code}`}><button type="button" disabled=${page === 0} onClick=${to(Math.max(0, page - PAGE))}>${words.table.previous}</button>
      <span>${words.table.range(Math.min(page + 1, kind.count), Math.min(page + kind.shown, kind.count), kind.count)}</span>
      <button type="button" disabled=${page + PAGE >= kind.count} onClick=${to(page + PAGE)}>${words.table.next}</button></nav>`}</section>`;
}

/** @param {{ finding: any }} props */
function Finding({ finding }) {
  const { page, query, label } = placeOf(finding);
  const { stream, group } = finding;
  const subject = typeof stream !== 'string' ? text.server : html`<${Name} name=${stream} max=${40} />${typeof group === 'string' && html` <span class="crumbs">/</span> <${Name} name=${group} max=${40} />`}`;
  return html`<li class=${`finding ${finding.health}`}>
    ${finding.health === 'ok' ? html`<span class="health" title=${text.remark}><span class="sign" aria-hidden="true">·</span><span class="only-read">${text.remark}</span></span>` : html`<${Health} health=${finding.health} brief=${true} />`}
    <div class="finding-text"><p><strong>${subject}</strong> <${Text} text=${finding.text} />
        ${finding.since_ms && html`<span class="soft">${words.group.since} <${Moment} ms=${finding.since_ms} /></span>`}</p>
      ${finding.way_out && html`<p class="way-out"><span>${text.wayOut}</span> <${Text} text=${finding.way_out} keepLines=${true} /></p>`}</div>
    <${Link} page=${page} query=${query} class="button small">${label} →<//></li>`;
}

/** What the store can do by itself. @param {{ data: any }} props */
function Abilities({ data }) {
  const all = Object.entries(data.capabilities ?? {});
  if (all.length === 0) return null;
  return html`<${Panel} title=${text.abilities}><dl class="properties">${all.map(([name, native]) => html`<dt key=${name}>${name.replaceAll('_', ' ')}</dt><dd>${native === true ? text.native : native === false ? text.notNative : html`<span class="unknown">-</span>`}</dd>`)}</dl><//>`;
}
