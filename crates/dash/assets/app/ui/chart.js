// @ts-check
/** Charts over time. A canvas has no text: each chart has a sentence and a table beside it. */

import uPlot from '../../vendor/uplot.js';
import { duration, time, timeMs } from '../format.js';
import { html, useEffect, useRef, useState } from '../html.js';
import { useObservable } from '../observable.js';
import { preferences } from '../preferences.js';
import { summary, tableRows, trend } from '../series.js';
import { words } from '../words.js';

const HEIGHT = 150;
const TABLE_ROWS = 20;

/**
 * @typedef {object} Series
 * @property {string} label
 * @property {(number | null)[]} values
 * @property {'a' | 'b' | 'bad'} tone colour
 */

/**
 * @param {object} props
 * @param {string} props.title
 * @param {number} props.fromMs
 * @param {number} props.stepMs
 * @param {Series[]} props.series
 * @param {(value: number | null | undefined) => string} props.show formats a value
 * @param {number} [props.floor] the axis reaches at least up to this value
 */
export function Chart({ title, fromMs, stepMs, series, show, floor = 2 }) {
  const host = useRef(/** @type {HTMLDivElement | null} */ (null));
  const chart = useRef(/** @type {any} */ (null));
  const [cursor, setCursor] = useState(/** @type {number | null} */ (null));
  const { theme } = useObservable(preferences);
  const points = series[0]?.values.length ?? 0;
  const data = () => [Array.from({ length: points }, (_, at) => (fromMs + at * stepMs) / 1000), ...series.map(({ values }) => values)];

  useEffect(() => {
    const element = host.current;
    if (!element) return undefined;
    const plot = new uPlot(options(element, series, show, floor, setCursor), data(), element);
    chart.current = plot;
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.destroy();
      chart.current = null;
    };
  }, [theme, series.map(({ label }) => label).join()]);
  useEffect(() => chart.current?.setData(data()), [fromMs, stepMs, ...series.map(({ values }) => values)]);

  const at = cursor !== null && cursor < points ? cursor : null;
  return html`<figure class="chart">
    <figcaption><h3>${title}</h3>
      <span class="legend">${series.map(({ label, tone, values }) => html`<span key=${label} class=${`key ${tone}`}>${label} <strong>${show(at === null ? summary(values)?.last : values[at])}</strong></span>`)}
        ${at !== null && html`<span class="at">${time(fromMs + at * stepMs)}</span>`}</span></figcaption>
    <div ref=${host} class="canvas" aria-hidden="true"></div>
    <p class="sentence">${series.map(({ label, values }) => sentence(label, values, points * stepMs, show)).join(' ')}</p>
    <details><summary>${words.chart.table}</summary><${ChartTable} fromMs=${fromMs} stepMs=${stepMs} series=${series} show=${show} points=${points} title=${title} /></details>
  </figure>`;
}

/** Says in words what a line shows. @param {string} label @param {(number | null)[]} values @param {number} spanMs @param {(value: number) => string} show */
function sentence(label, values, spanMs, show) {
  const found = summary(values);
  if (!found) return words.chart.nothing(label);
  const unknownMs = spanMs * (1 - found.known / values.length);
  return words.chart.sentence(label, duration(spanMs), show(found.first), show(found.last), show(found.lowest), show(found.highest), trend(values), unknownMs >= 0.05 * spanMs ? duration(unknownMs) : '');
}

/** @param {any} props */
function ChartTable({ fromMs, stepMs, series, show, points, title }) {
  return html`<div class="chart-table"><table><caption class="only-read">${title}</caption>
    <thead><tr><th scope="col">${words.chart.time}</th>${series.map((/** @type {Series} */ { label }) => html`<th scope="col" class="number">${label}</th>`)}</tr></thead>
    <tbody>${tableRows(points, TABLE_ROWS).map((at) => html`<tr key=${at}><td>${timeMs(fromMs + at * stepMs)}</td>
      ${series.map((/** @type {Series} */ { values }) => html`<td class="number">${show(values[at])}</td>`)}</tr>`)}</tbody></table></div>`;
}

/** Formats times that are less than a minute apart with their seconds. @param {number[]} splits in seconds */
function timeLabels(splits) {
  const withSeconds = splits.length > 1 && splits[1] - splits[0] < 60;
  return splits.map((at) => (withSeconds ? time(at * 1000) : time(at * 1000).slice(0, 5)));
}

/** @param {HTMLElement} element @param {Series[]} series @param {(value: number) => string} show @param {number} floor @param {(at: number | null) => void} onCursor */
function options(element, series, show, floor, onCursor) {
  const style = getComputedStyle(element);
  const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  const font = `11px ${style.fontFamily}`;
  const axis = { stroke: colour('--text-soft'), font, grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } };
  return {
    width: Math.max(200, element.clientWidth), height: HEIGHT, legend: { show: false }, padding: [8, 8, 0, 0],
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    hooks: { setCursor: [(/** @type {any} */ plot) => onCursor(plot.cursor.idx ?? null)] },
    scales: { y: { range: (/** @type {any} */ _plot, /** @type {number} */ _low, /** @type {number} */ high) => [0, Math.max(floor, (high ?? 0) * 1.1)] } },
    axes: [
      { ...axis, size: 22, space: 70, values: (/** @type {any} */ _plot, /** @type {number[]} */ splits) => timeLabels(splits) },
      { ...axis, size: 56, space: 34, values: (/** @type {any} */ _plot, /** @type {number[]} */ splits) => splits.map(show) },
    ],
    series: [{}, ...series.map(({ label, tone }, at) => ({
      label, stroke: colour(`--line-${tone}`), width: 1.75, dash: at > 0 ? [5, 3] : undefined, spanGaps: false,
      fill: series.length === 1 ? colour(`--fill-${tone}`) : undefined, points: { show: false },
    }))],
  };
}
