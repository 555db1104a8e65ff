// @ts-check
/** The charts of a group: lag, rates, pending entries and the age of the oldest unread entry. */

import { useGet } from '../api.js';
import { countShort, duration, rateNumber } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { setQuery } from '../router.js';
import { words } from '../words.js';
import { Chart } from '../ui/chart.js';
import { Choices, Loaded, Panel } from '../ui/parts.js';

const text = words.groupCharts;
const RANGES = /** @type {Record<string, number>} */ ({ '5m': 300_000, '15m': 900_000, '1h': 3_600_000 });
const POINTS = 360;

/** @param {{ stream: string, group: string, range: string, atMs: number }} props `atMs`: when the store was last looked at, by the dashboard's clock */
export function GroupCharts({ stream, group, range, atMs }) {
  const span = RANGES[range] ?? RANGES['1h'];
  const step = Math.max(2000, span / POINTS);
  const to = Math.floor(atMs / step) * step;
  const [kept, setKept] = useState(/** @type {any} */ (null));
  const found = useGet('/history', { stream, group, from_ms: to - span, to_ms: to, points: POINTS });
  useEffect(() => { if (found.data) setKept({ key: `${stream} ${group}`, data: found.data }); }, [found.data]);
  const data = found.data ?? (kept?.key === `${stream} ${group}` ? kept.data : null);
  return html`<${Panel} title=${text.title} actions=${html`<${Choices} label=${text.range} value=${range} choices=${Object.keys(RANGES).map((each) => [each, each])} onChange=${(/** @type {string} */ t) => setQuery({ t }, { replace: true })} />`}>
    <${Loaded} from=${{ ...found, data }}>${(/** @type {any} */ history) => {
      const common = { fromMs: history.from_ms, stepMs: history.step_ms };
      const values = (/** @type {string} */ name) => history[name] ?? [];
      return html`<div class="charts">
        <${Chart} title=${words.overview.lag} ...${common} show=${countShort} series=${[{ label: text.lag, values: values('lag'), tone: 'a' }]} />
        <${Chart} title=${text.rates} ...${common} show=${rateNumber} series=${[{ label: text.in, values: values('in'), tone: 'a' }, { label: text.out, values: values('out'), tone: 'b' }]} />
      </div>
      <details class="more-info"><summary>${text.more}</summary><div class="charts">
        <${Chart} title=${words.overview.pending} ...${common} show=${countShort} series=${[{ label: text.pending, values: values('pending'), tone: 'b' }]} />
        <${Chart} title=${words.overview.oldest} ...${common} show=${duration} series=${[{ label: text.oldest, values: values('oldest_unread_ms'), tone: 'bad' }]} />
      </div></details>`;
    }}<//>
  <//>`;
}
