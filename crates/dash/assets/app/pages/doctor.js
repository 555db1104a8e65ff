// @ts-check
/** The findings of the doctor, worst first: what is wrong, since when, what to do, and a link to the page for it. */

import { useGet } from '../api.js';
import { commands } from '../cli.js';
import { counted } from '../format.js';
import { findingsText, placeOf, subjectOf } from '../findings.js';
import { html } from '../html.js';
import { matches, parseFilter } from '../rows.js';
import { setQuery } from '../router.js';
import { status, useLive } from '../live.js';
import { words } from '../words.js';
import { Ago, CliLine, CopyButton, Health, Link, Loaded, Moment, Name, Panel, Text } from '../ui/parts.js';
import { FilterBar } from '../ui/table.js';

const text = words.doctor;

/** @param {{ query: URLSearchParams }} props */
export function Doctor({ query }) {
  useLive('jobs');
  const filter = parseFilter(query.get('q') ?? '');
  const shown = (/** @type {any[]} */ findings) => findings.filter((each) => matches(filter, `${each.health === 'ok' ? text.remark : each.health} ${each.code} ${subjectOf(each)} ${each.text}`));
  const found = useGet('/doctor', {}, { every_ms: 5000 });
  return html`<div class="page-head"><h1>${text.title}</h1>
      ${found.data && html`<div class="actions"><${CopyButton} text=${findingsText(found.data.findings)} label=${text.copyText} class="" /><${CopyButton} text=${JSON.stringify(found.data, null, 2)} label=${text.copyJson} class="" /></div>`}</div>
    <${Loaded} from=${found}>${(/** @type {any} */ data) => html`<${Answer} data=${data} />
      <${Panel} class="table-panel">
        ${data.findings.length > 0 && html`<${FilterBar} label=${text.filter} value=${query.get('q') ?? ''} onInput=${(/** @type {string} */ q) => setQuery({ q }, { replace: true })} matched=${shown(data.findings).length} total=${data.findings.length} />`}
        ${shown(data.findings).length === 0 ? html`<p class="empty">${data.findings.length === 0 ? text.nothing : text.noMatch}</p>` : html`<ul class="findings">${shown(data.findings).map((finding) => html`<${Finding} key=${finding.id} finding=${finding} />`)}</ul>`}<//>
      <${Abilities} data=${data} />`}<//>
    <${CliLine} line=${commands(status.value?.place ?? '').doctor()} />`;
}

/** @param {{ data: any }} props */
function Answer({ data }) {
  const number = (/** @type {string} */ health) => data.kinds.filter((/** @type {any} */ kind) => kind.health === health).reduce((/** @type {number} */ sum, /** @type {any} */ kind) => sum + kind.count, 0);
  return html`<section class=${`answer ${data.health}`}><p class="verdict"><${Health} health=${data.health} brief=${true} /> ${text.answer(number('critical'), number('degraded'), number('ok'))}</p>
    <p class="soft">${text.looked(counted(data.streams, text.stream, text.streams), counted(data.groups, text.group, text.groups))} <${Ago} ms=${data.at_ms} /> ${words.entry.ago}</p></section>`;
}

/** @param {{ finding: any }} props */
function Finding({ finding }) {
  const { page, query, label } = placeOf(finding);
  const { stream, group } = finding;
  const subject = typeof stream !== 'string' ? text.server : html`<${Name} name=${stream} max=${40} />${typeof group === 'string' && html` <span class="crumbs">/</span> <${Name} name=${group} max=${40} />`}`;
  return html`<li class=${`finding ${finding.health}`}>
    ${finding.health === 'ok' ? html`<span class="health" title=${text.remark}><span class="sign" aria-hidden="true">·</span><span class="only-read">${text.remark}</span></span>` : html`<${Health} health=${finding.health} brief=${true} />`}
    <div class="finding-text"><p><strong>${subject}</strong> <${Text} text=${finding.text} />
        <span class="soft"><code>${finding.code}</code>${finding.since_ms && html` ${words.group.since} <${Moment} ms=${finding.since_ms} />`}</span></p>
      ${finding.way_out && html`<p class="way-out"><span>${text.wayOut}</span> <${Text} text=${finding.way_out} keepLines=${true} /></p>`}</div>
    <${Link} page=${page} query=${query} class="button small">${label} →<//></li>`;
}

/** What the store can do by itself. @param {{ data: any }} props */
function Abilities({ data }) {
  const all = Object.entries(data.capabilities ?? {});
  if (all.length === 0) return null;
  return html`<${Panel} title=${text.abilities}><dl class="properties">${all.map(([name, native]) => html`<dt key=${name}>${name.replaceAll('_', ' ')}</dt><dd>${native === true ? text.native : native === false ? text.notNative : html`<span class="unknown">-</span>`}</dd>`)}</dl><//>`;
}
