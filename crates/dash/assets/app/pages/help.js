// @ts-check
/** The help page: what the words and signs of the pages mean, the keys, and what the dashboard knows about the store. */

import { status } from '../live.js';
import { html } from '../html.js';
import { useLive } from '../live.js';
import { useObservable } from '../observable.js';
import { bytes, count, duration } from '../format.js';
import { words } from '../words.js';
import { KeysTable } from '../ui/keys-dialog.js';
import { CliLine, Moment, Panel, Text } from '../ui/parts.js';
import { commands } from '../cli.js';

export function Help() {
  const known = useObservable(status);
  useLive('jobs');
  const { history, look, limits, capabilities, redacted } = known;
  return html`<h1>${words.nav.help}</h1>
    <div class="columns">
      <${Panel} title=${words.help.words}><dl class="glossary">${words.help.glossary.map(([term, text]) => html`<dt key=${term}>${term}</dt><dd>${text}</dd>`)}</dl><//>
      <div>
        <${Panel} title=${words.keys.title}><${KeysTable} /><//>
        <${Panel} title=${words.help.store}><dl class="properties">
          <dt>${words.help.place}</dt><dd><bdi><${Text} text=${known.place ?? ''} /></bdi></dd>
          <dt>${words.help.product}</dt><dd>${known.product ?? '-'}</dd>
          ${look && html`<dt>${words.help.look}</dt><dd><${Moment} ms=${look.at_ms} /> (${words.help.took(duration(look.took_ms))}): ${words.help.counts(count(look.streams), count(look.groups))}</dd>`}
          ${history && html`<dt>${words.help.history}</dt><dd>${words.help.historySince} <${Moment} ms=${history.since_ms} />, ${bytes(history.bytes)}</dd>`}
          ${redacted && html`<dt>${words.help.redacted}</dt><dd>${redacted.length > 0 ? redacted.join(', ') : words.help.none}</dd>`}
          ${capabilities && html`<dt>${words.help.missing}</dt><dd>${Object.entries(capabilities).filter(([, has]) => has === false).map(([name]) => name).join(', ') || words.help.none}</dd>`}
          ${limits && html`<dt>${words.help.limits}</dt><dd>${Object.entries(limits).map(([name, value]) => `${name} ${typeof value === 'number' ? count(value) : value}`).join(', ')}</dd>`}
        </dl><${CliLine} line=${commands(known.place ?? '').overview()} /><//>
      </div>
    </div>`;
}
