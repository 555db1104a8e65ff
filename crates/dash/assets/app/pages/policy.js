// @ts-check
/** Shows the policy that is in force for a stream or a group. */

import { count, duration, durationExact, isNumber, bytes } from '../format.js';
import { html } from '../html.js';
import { words } from '../words.js';
import { Text } from '../ui/parts.js';

/** Formats one value of a policy by the unit in its name. @param {string} name @param {any} value @returns {string} */
function show(name, value) {
  if (Array.isArray(value)) return value.map((each) => show(name, each)).join(' … ');
  if (value !== null && typeof value === 'object') return Object.values(value).map((each) => show(name, each)).join(' … ');
  if (!isNumber(value)) return String(value);
  if (name.endsWith('_ms')) return duration(value);
  return name.endsWith('_bytes') ? bytes(value) : count(value);
}

/** @param {{ policy: Record<string, any> | null | undefined }} props */
export function PolicyFacts({ policy }) {
  // A policy also has counters and names; only fields with a word are settings.
  const values = Object.entries(policy ?? {}).filter(([name, value]) => value !== null && Object.hasOwn(words.policy.fields, name));
  if (values.length === 0) return null;
  return html`<p class="policy"><strong>${words.policy.title}</strong> ${values.map(([name, value]) => html`<span key=${name} title=${name.endsWith('_ms') && isNumber(value) ? durationExact(value) : name}>
    <span class="soft">${words.policy.fields[/** @type {'lease_ms'} */ (name)]}</span> <${Text} text=${show(name, value)} /></span> `)}
    ${policy?.dlq_error && html`<span class="bad-text"><${Text} text=${policy.dlq_error} /></span>`}</p>`;
}
