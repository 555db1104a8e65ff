// @ts-check
/** The actions on the server: take a snapshot, empty the slow log, change how often the log is synced. */

import { commands } from '../cli.js';
import { counted } from '../format.js';
import { html, useState } from '../html.js';
import { status } from '../live.js';
import { words } from '../words.js';
import { ActionDialog } from '../ui/action.js';
import { Choices } from '../ui/parts.js';

const text = words.server;
const line = (/** @type {string[]} */ ...parts) => commands(status.value?.place ?? '').server(parts);

/** @typedef {{ onClose: () => void, onDone: () => void }} Props */

/** @param {Props} props */
export function SnapshotDialog({ onClose, onDone }) {
  return html`<${ActionDialog} title=${text.snapshotTitle} path="/server/snapshot" body=${{}} cli=${line('bgsave')} onClose=${onClose} onDone=${onDone}
    describe=${() => ({ count: 1, button: text.snapshotButton, text: html`<p>${text.snapshotPlan}</p>` })}
    done=${(/** @type {any} */ answer) => text.snapshotDone[/** @type {'taken'} */ (answer.state)] ?? text.snapshotDone.started} />`;
}

/** @param {Props} props */
export function ResetSlowLogDialog({ onClose, onDone }) {
  return html`<${ActionDialog} title=${text.resetSlowTitle} path="/server/slowlog-reset" body=${{}} cli=${line('slowlog', 'reset')} onClose=${onClose} onDone=${onDone}
    describe=${(/** @type {any} */ plan) => ({ count: plan.matched, button: text.resetSlowButton(plan.matched), text: html`<p>${text.resetSlowPlan(counted(plan.matched, text.slowOne, text.slowMany))}</p>`, refuse: plan.matched === 0 ? text.slowNone : undefined })}
    done=${() => text.resetSlowDone} />`;
}

/** @param {Props & { now: string | null }} props */
export function FsyncDialog({ now, onClose, onDone }) {
  const [value, setValue] = useState(now === 'always' ? 'everysec' : 'always');
  const form = html`<${Choices} label=${text.fsync} value=${value} choices=${text.fsyncs} onChange=${setValue} /><p class="hint">${text.fsyncHints[/** @type {'always'} */ (value)]}</p>`;
  return html`<${ActionDialog} title=${text.fsyncTitle} path="/server/config" body=${{ name: 'appendfsync', value }} form=${form} cli=${line('config', 'set', 'appendfsync', value)} onClose=${onClose} onDone=${onDone}
    describe=${(/** @type {any} */ plan) => ({ count: 1, button: text.fsyncButton(value), text: html`<p>${text.fsyncPlan(plan.before ?? '?', plan.after)}</p>`, refuse: plan.before === plan.after ? text.fsyncSame : undefined })}
    done=${() => text.fsyncDone(value)} />`;
}
