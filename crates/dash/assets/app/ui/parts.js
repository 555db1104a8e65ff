// @ts-check
/** The small parts of all pages: names, numbers, ages, health, errors, links, panels, command lines. */

import * as format from '../format.js';
import { Fragment, html, useEffect, useState } from '../html.js';
import { useErrorBoundary } from '../../vendor/hooks.js';
import { clip, parts, printable } from '../printable.js';
import { href } from '../router.js';
import { sparkPath } from '../series.js';
import { words } from '../words.js';
import { say } from './toasts.js';

/** Longest name that is shown whole. */
const NAME_CHARACTERS_MAX = 80;

/** Shows a text with labels instead of misleading characters. @param {{ text: string, keepLines?: boolean }} props */
export function Text({ text, keepLines }) {
  return parts(text, { keepLines }).map((part) => (part.label ? html`<span class="character">${part.text}</span>` : part.text));
}

/** Shows a name of a stream, group, consumer or field. Its direction cannot affect the text around it. @param {{ name: string, max?: number }} props */
export function Name({ name, max = NAME_CHARACTERS_MAX }) {
  if (name === '') return html`<bdi class="name none" title=${words.parts.emptyNameTitle}>${words.parts.emptyName}</bdi>`;
  if (name.trim() === '') return html`<bdi class="name none" title=${words.parts.blankNameTitle(name.length)}>${words.parts.blankName}</bdi>`;
  const shown = clip(name, max);
  return html`<bdi class="name" title=${shown === name ? undefined : printable(clip(name, 2000))}><${Text} text=${shown} /></bdi>`;
}

/** A link to one of our pages. @param {{ page: string, query?: import('../routes.js').Query, class?: string, children?: any, [other: string]: any }} props */
export function Link({ page, query, children, ...others }) {
  return html`<a href=${href(page, query)} ...${others}>${children}</a>`;
}

/** Shows that a value is unknown, and why. @param {{ why?: string }} props */
export function Unknown({ why = words.parts.unknown }) {
  return html`<span class="unknown" title=${why}>${format.UNKNOWN}</span>`;
}

/**
 * Shows a count: with `≥` or `≤` if it is a bound; the tooltip has the exact value.
 * @param {{ value: number | null | undefined, exact?: boolean, sign?: '≥' | '≤', short?: boolean, why?: string, unit?: string }} props
 */
export function Count({ value, exact = true, sign = '≥', short, why, unit = '' }) {
  if (!format.isNumber(value)) return html`<${Unknown} why=${why} />`;
  const title = `${format.bound(value, exact, sign)}${unit && ` ${unit}`}${exact ? '' : ` (${sign === '≥' ? words.parts.atLeast : words.parts.atMost})`}`;
  return html`<span class=${value === 0 ? 'zero' : undefined} title=${title}>${exact ? '' : sign}${short ? format.countShort(value) : format.count(value)}</span>`;
}

/** Shows a rate. The column has the unit, or `unit` is set. @param {{ value: number | null | undefined, unit?: boolean, signed?: boolean }} props */
export function Rate({ value, unit, signed }) {
  if (!format.isNumber(value)) return html`<${Unknown} why=${words.parts.rateUnknown} />`;
  const text = unit ? (signed ? format.change(value) : format.rate(value)) : format.rateNumber(value);
  return html`<span class=${value === 0 ? 'zero' : undefined} title=${`${value} ${words.parts.perSecond}`}>${text}</span>`;
}

/** Shows a duration. @param {{ ms: number | null | undefined, exact?: boolean, sign?: '≥' | '≤', why?: string }} props */
export function Duration({ ms, exact = true, sign = '≤', why }) {
  if (!format.isNumber(ms)) return html`<${Unknown} why=${why} />`;
  const title = `${exact ? '' : `${words.parts.atMost} `}${format.durationExact(ms)}`;
  return html`<span title=${title}>${exact ? '' : sign}${format.duration(ms)}</span>`;
}

/** Shows a moment in local time; the tooltip has UTC and the milliseconds. @param {{ ms: number | null | undefined, exact?: boolean, why?: string }} props */
export function Moment({ ms, exact, why }) {
  if (!format.isNumber(ms)) return html`<${Unknown} why=${why} />`;
  return html`<time datetime=${format.utc(ms)} title=${`${format.utc(ms)} · ${ms}`}>${exact ? format.momentMs(ms) : format.moment(ms, Date.now())}</time>`;
}

/** Shows how long ago something was; the tooltip has the moment. @param {{ ms: number | null | undefined, why?: string }} props */
export function Ago({ ms, why }) {
  const now = useNow();
  if (!format.isNumber(ms)) return html`<${Unknown} why=${why} />`;
  return html`<time datetime=${format.utc(ms)} title=${format.utc(ms)}>${format.duration(now - ms)}</time>`;
}

/** Returns the time, and draws the component again each second. */
export function useNow() {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === 'visible' && setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

/** Number of points of a trend: ten seconds each. */
const TREND_POINTS = 30;

const SIGNS = /** @type {Record<string, string>} */ ({ critical: '!', degraded: '~', unknown: '?', ok: '✓' });

/** Shows a health: a sign, a colour and, unless `brief`, the word. @param {{ health: string | null | undefined, brief?: boolean }} props */
export function Health({ health, brief }) {
  if (!health) return html`<span class="health" title=${words.health.none}><span aria-hidden="true">·</span><span class="only-read">${words.health.none}</span></span>`;
  const word = words.health[/** @type {'ok'} */ (health)] ?? health;
  return html`<span class=${`health ${health}`} title=${word}><span class="sign" aria-hidden="true">${SIGNS[health] ?? '·'}</span><span class=${brief ? 'only-read' : 'word'}>${word}</span></span>`;
}

/** A line of the last minutes. The text beside it has the numbers. @param {{ values: (number | null)[] | null | undefined, label: string }} props */
export function Sparkline({ values, label }) {
  // A short history keeps its place at the right: the width is always five minutes.
  const padded = [...Array(Math.max(0, TREND_POINTS - (values?.length ?? 0))).fill(null), ...(values ?? [])];
  const path = sparkPath(padded, 64, 18);
  if (path === '') return html`<span class="unknown" title=${words.parts.noTrend}>${format.UNKNOWN}</span>`;
  return html`<svg class="sparkline" viewBox="0 0 64 18" width="64" height="18" role="img" aria-label=${label}><path d=${path} /></svg>`;
}

/** Shows why something failed and what to do. @param {{ problem: import('../api.js').Problem, retry?: () => void }} props */
export function ProblemNote({ problem, retry }) {
  return html`<div class="note bad" role="alert">
    <p><strong><${Text} text=${problem.detail || problem.title} /></strong></p>
    ${problem.wayOut && html`<p><${Text} text=${problem.wayOut} /></p>`}
    ${retry && html`<button type="button" onClick=${retry}>${words.parts.tryAgain}</button>`}
  </div>`;
}

/** Shows a loading message, then the content, or the problem if the request failed. @param {{ from: { data: any, problem: any, reload: () => void }, children: (data: any) => any }} props */
export function Loaded({ from, children }) {
  if (from.data === null && from.problem) return html`<${ProblemNote} problem=${from.problem} retry=${from.reload} />`;
  if (from.data === null) return html`<p class="loading">${words.parts.loading}</p>`;
  return html`${from.problem && html`<${ProblemNote} problem=${from.problem} retry=${from.reload} />`}<${Fragment}>${children(from.data)}<//>`;
}

/**
 * A part of a page with a title. An error inside ends this part alone, never the page.
 * @param {{ title?: any, actions?: any, class?: string, children?: any }} props
 */
export function Panel({ title, actions, class: className = '', children }) {
  return html`<section class=${`panel ${className}`}>
    ${(title || actions) && html`<header class="panel-head">${title && html`<h2>${title}</h2>`}${actions && html`<div class="actions">${actions}</div>`}</header>`}
    <${Guarded}>${children}<//>
  </section>`;
}

/** Shows an error of its children instead of them. @param {{ children?: any }} props */
export function Guarded({ children }) {
  const [error, reset] = useErrorBoundary((/** @type {unknown} */ thrown) => console.error(thrown));
  if (!error) return children;
  return html`<div class="note bad" role="alert"><p><strong>${words.errors.part}</strong> ${String(error)}</p><button type="button" onClick=${reset}>${words.parts.tryAgain}</button></div>`;
}

/** Copies a text to the clipboard. @param {{ text: string, label?: string, class?: string }} props */
export function CopyButton({ text, label = words.parts.copy, class: className = 'small' }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      say(words.parts.copied);
    } catch {
      say(words.parts.notCopied);
    }
  };
  return html`<button type="button" class=${className} onClick=${copy}>${label}</button>`;
}

/** The command line that does the same as this page or action. @param {{ line: string | null }} props */
export function CliLine({ line }) {
  if (line === null) return null;
  return html`<div class="cli"><span class="cli-label">${words.parts.cli}</span><code dir="ltr" tabindex="0">${line}</code><${CopyButton} text=${line} /></div>`;
}

/** A number with its label, in the row of numbers at the head of a page. @param {{ label: string, children?: any, tone?: string, page?: string, query?: any, title?: string }} props */
export function Fact({ label, children, tone = '', page, query, title }) {
  const value = page === undefined ? html`<span class="fact-value">${children}</span>` : html`<${Link} page=${page} query=${query} class="fact-value">${children}<//>`;
  return html`<div class=${`fact ${tone}`} title=${title}><dt>${label}</dt><dd>${value}</dd></div>`;
}

/** One of several choices, as a row of buttons. @param {{ label: string, value: string, choices: [value: string, label: string][], onChange: (value: string) => void }} props */
export function Choices({ label, value, choices, onChange }) {
  return html`<div class="choices" role="group" aria-label=${label}>
    ${choices.map(([each, text]) => html`<button type="button" key=${each} aria-pressed=${each === value} onClick=${() => onChange(each)}>${text}</button>`)}
  </div>`;
}

/**
 * A field of text whose value comes from the address. What somebody types stays while the page draws itself anew, until the address changes.
 * @param {{ value: string, inputRef?: any, [other: string]: any }} props
 */
export function Draft({ value, inputRef, ...others }) {
  const [draft, setDraft] = useState(/** @type {string | null} */ (null));
  useEffect(() => setDraft(null), [value]);
  return html`<input ref=${inputRef} autocomplete="off" spellcheck=${false} ...${others} value=${draft ?? value} onInput=${(/** @type {any} */ event) => setDraft(event.target.value)} />`;
}

/** A labelled field of a form. @param {{ label: string, hint?: any, error?: string | null, children?: any }} props */
export function Field({ label, hint, error, children }) {
  return html`<label class="field"><span class="field-label">${label}</span>${children}${hint && html`<span class="hint">${hint}</span>`}${error && html`<span class="field-error" role="alert">${error}</span>`}</label>`;
}
