// @ts-check
/** All words of the pages, by page. A translation replaces this module. */

import { clip, printable } from './printable.js';

/** @param {number} value @param {string} one @param {string} many */
const noun = (value, one, many) => (value === 1 ? one : many);

/** Cuts a name for a button. @param {string} name */
const short = (name) => clip(printable(name), 40);

export const words = {
  nav: {
    overview: 'Overview', help: 'Help', pages: 'Pages', skip: 'Skip to the content',
  },
  head: {
    readOnly: 'read-only', readOnlyTitle: 'This dashboard was started read-only: it has no actions.',
    find: 'Find', menu: 'Display, keys, help', keys: 'Keys', logout: 'Log out', theme: 'Theme',
    themes: /** @type {[string, string][]} */ ([['system', 'System'], ['light', 'Light'], ['dark', 'Dark']]),
    compact: 'Compact rows', letterKeys: 'Single letters are keys', interval: 'Look every', intervalDefault: 'as started',
  },
  live: {
    live: (/** @type {string} */ interval) => `live, ${interval}`,
    connecting: 'connecting', lost: 'no connection', paused: 'paused',
    pauseTitle: 'Pause the live updates (p)', resumeTitle: 'Continue the live updates (p)',
    noAnswer: (/** @type {string} */ since) => `No answer from the dashboard for ${since}, trying again.`,
    trouble: (/** @type {string} */ since) => `No answer from the store for ${since}, trying again.`,
  },
  health: { critical: 'critical', degraded: 'degraded', ok: 'ok', none: 'no group' },
  parts: {
    emptyName: '(empty)', emptyNameTitle: 'The name has no characters.',
    unknown: 'The store does not know this value.', rateUnknown: 'A rate is known after two looks at the store.',
    atLeast: 'at least', atMost: 'at most', perSecond: 'per second', noTrend: 'Not enough looks yet.',
    tryAgain: 'Try again', loading: 'Loading…', copy: 'Copy', copied: 'Copied.', close: 'Close',
    notCopied: 'The browser does not allow copying here. Select the text instead.',
    cli: 'CLI',
  },
  errors: {
    noAnswer: 'The dashboard does not answer.', noAnswerWayOut: 'Check that its process runs. The page tries again by itself.',
    part: 'This part of the page failed.', notFound: 'Page not found', notFoundText: 'The dashboard has no page with this address.',
  },
  table: {
    filter: 'Filter', sortBy: 'Sort by', ascending: 'ascending', descending: 'descending', row: 'row', rows: 'rows', empty: 'No rows.',
    select: 'Select the row', selectAll: 'Select all rows',
    matched: (/** @type {number} */ matched, /** @type {number} */ total) => `${matched.toLocaleString()} of ${total.toLocaleString()} match`,
    older: 'Older', newer: 'Newer', previous: 'Previous', next: 'Next',
    range: (/** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ of) => `${from.toLocaleString()}–${to.toLocaleString()} of ${of.toLocaleString()}`,
  },
  chart: {
    table: 'Values as a table', time: 'Time',
    nothing: (/** @type {string} */ label) => `${label}: no values yet.`,
    sentence: (/** @type {string} */ label, /** @type {string} */ span, /** @type {string} */ first, /** @type {string} */ last, /** @type {string} */ lowest, /** @type {string} */ highest, /** @type {string} */ trend) =>
      `${label}, last ${span}: ${first} at first, ${last} now, ${lowest} to ${highest}; ${{ grows: 'growing', shrinks: 'shrinking', steady: 'steady', unknown: 'too few values for a trend' }[trend]}.`,
  },
  action: {
    preview: 'Preview', cancel: 'Cancel', looking: 'Looking what would change…', done: 'Done.', started: 'Started. It runs in the dashboard; its progress is at the edge of the page.',
    moved: 'The store has changed since the preview. This is the new one.',
    typeNumber: (/** @type {string} */ number) => `Type the number ${number} to confirm`,
  },
  jobs: {
    title: 'Running actions', progress: 'Progress', stop: 'Stop',
    left: (/** @type {string} */ time) => `${time} left`,
    kinds: { redrive: 'Redrive', purge: 'Delete dead letters', pending_claim: 'Claim', pending_ack: 'Acknowledge', pending_nack: 'Give back', pending_extend: 'Extend' },
    states: { running: 'running', done: 'done', stopped: 'stopped', failed: 'failed' },
  },
  palette: {
    title: 'Find a group, a page or an action', placeholder: 'Name of a stream or group, page or action', results: 'Matches',
    page: 'page', group: 'group', stream: 'stream', action: 'do', nothing: 'Nothing has this name.',
  },
  keys: {
    title: 'Keys',
    rows: /** @type {[string, string][]} */ ([
      ['j / k', 'Next and previous row (also the arrows)'], ['Enter', 'Open the row'], ['Esc', 'Back; empty the filter; close the dialog'],
      ['/', 'Filter'], ['s', 'Sort by the next column'], ['p', 'Pause and continue'], ['[ / ]', 'Previous and next page of rows'],
      ['x', 'Select the row'], ['Ctrl K', 'Find a group, a page or an action'], ['?', 'This list'],
    ]),
  },
  values: {
    hidden: '(hidden)', hiddenTitle: 'Hidden: the field matches a rule of --redact, the dashboard shows no payloads, or the value is nested too deeply to look for hidden parts.',
    empty: '(empty)', noFields: 'The entry has no fields.', raw: 'Raw', form: 'Show values as',
    forms: /** @type {[string, string][]} */ ([['auto', 'Auto'], ['text', 'Text'], ['json', 'JSON'], ['hex', 'Hex'], ['table', 'Table']]),
    cut: (/** @type {string} */ size) => `The value has ${size}; this is its beginning.`,
    moreText: (/** @type {string} */ left) => `Show more: ${left} characters left`,
    hexLabel: (/** @type {string} */ size, /** @type {number} */ width) => `Hex dump of ${size} bytes, ${width} in a line`,
    jsonLabel: 'JSON document', layingOut: 'Laying out the document…', fold: 'Fold', unfold: 'Unfold', foldAll: 'Fold all', unfoldAll: 'Unfold all',
    keys: (/** @type {string} */ text, /** @type {number} */ n) => `${text} ${noun(n, 'key', 'keys')}`,
    items: (/** @type {string} */ text, /** @type {number} */ n) => `${text} ${noun(n, 'item', 'items')}`,
    notJson: (/** @type {string} */ why) => `This is not a JSON document: ${why}. It is shown as text.`,
    whole: (/** @type {string} */ size) => `show all ${size} characters`,
    moreRows: (/** @type {string} */ left) => `${left} more rows are in the JSON form.`,
  },
  login: {
    user: 'Log in as a user of the server. The rules of this user apply to everything you see and do.',
    password: 'This dashboard has a password.', userLabel: 'User', passwordLabel: 'Password', submit: 'Log in',
  },
  overview: {
    title: 'Streams and groups', streams: 'Streams', groups: 'Groups', lag: 'Lag', pending: 'Pending', stuck: 'Stuck', dead: 'Dead letters',
    in: 'In', out: 'Out', workers: 'Workers', stream: 'Stream', group: 'Group', trend: 'Trend', oldest: 'Oldest unread', inRate: 'In/s', outRate: 'Out/s', eta: 'ETA',
    health: 'Health', length: 'Entries', deadShort: 'Dead', all: 'All',
    lagHint: 'Entries that the group has not read yet', trendHint: 'Lag of the last five minutes', oldestHint: 'Age of the oldest entry that the group has not read',
    pendingHint: 'Entries that consumers have read and not acknowledged', stuckHint: 'Pending entries that nobody has worked on for long, or that were delivered again and again',
    etaHint: 'When the group will have read everything, if the rates stay as they are', deadHint: 'Entries in the dead-letter stream',
    well: 'Everything is well.', empty: 'The store has no streams.', nothing: 'No stream or group matches.',
    counts: (/** @type {number} */ critical, /** @type {number} */ degraded, /** @type {number} */ ok) =>
      [[critical, 'critical'], [degraded, 'degraded'], [ok, 'ok']].filter(([n]) => Number(n) > 0)
        .map(([n, word], at) => `${n.toLocaleString()} ${at === 0 ? `${noun(Number(n), 'group is', 'groups are')} ` : ''}${word}`).join(', '),
    more: (/** @type {number} */ more) => `and ${more.toLocaleString()} more`,
    noGroup: 'no group', export: 'Export JSON', notOpenable: 'The name is not UTF-8. The dashboard lists the stream, and cannot open it.',
    trendLabel: (/** @type {string} */ lag) => `Lag of the last five minutes; now ${lag}`,
    etaTitles: /** @type {Record<string, string>} */ ({ caught_up: 'The group has read everything.', never: 'At the present rates, the lag does not shrink.', unknown: 'The rates are not known yet.', at: 'If the rates stay as they are' }),
    lagUnknown: 'The store does not know the lag of this group.', oldestNone: 'Nothing is unread, or its age is unknown.',
    announce: (/** @type {string} */ text) => `Health changed: ${text}`,
  },
  help: {
    words: 'Words and signs', store: 'This store', place: 'Store', product: 'Product', look: 'Last look', took: (/** @type {string} */ time) => `took ${time}`,
    counts: (/** @type {string} */ streams, /** @type {string} */ groups) => `${streams} streams, ${groups} groups`,
    history: 'History', historySince: 'known since', redacted: 'Hidden fields', missing: 'Not possible here', none: 'none', limits: 'Limits',
    glossary: /** @type {[string, string][]} */ ([
      ['! critical', 'Somebody has to act: for example, nobody reads, or entries are stuck.'],
      ['~ degraded', 'It works, and will not for long, or works worse than it should.'],
      ['Lag', 'Entries of the stream that the group has not read yet. ≥ means at least, because the store could not count them all.'],
      ['Oldest unread', 'Age of the oldest entry that the group has not read. ≤ means at most.'],
      ['Pending', 'Entries that a consumer has read and not acknowledged yet.'],
      ['Stuck', 'Pending entries that have been idle for long or were delivered often.'],
      ['Give back', 'Releases a pending entry, so that any consumer can claim it at once.'],
      ['Claim', 'Moves a pending entry to another consumer.'],
      ['Acknowledge', 'Marks an entry as done. The group does not get it again.'],
      ['Dead letter', 'An entry that a group could not handle, with the reason, in a stream of its own.'],
      ['Redrive', 'Moves dead letters back to the group that could not handle them.'],
      ['-', 'Unknown. The tooltip says why.'],
      ['⟨U+202E⟩', 'A character that is invisible or changes the direction of text.'],
    ]),
  },
  stream: {
    tail: 'Live tail', add: 'Add a message', createGroup: 'Create a group', trim: 'Trim', groups: 'Groups', noGroups: 'No group reads this stream.',
    entries: 'Entries', in: 'In', memory: 'Memory', memoryUnknown: 'The store does not tell how much memory a stream takes.', oldest: 'Oldest entry', newest: 'Newest entry',
    noEntries: 'The stream has no entries, or their ids are no times.', groupCount: 'Groups', dead: 'Dead letters', delayed: 'Delayed',
  },
  policy: {
    title: 'Policy in force:',
    fields: {
      lease_ms: 'lease', max_deliveries: 'deliveries at most', dead_letters: 'dead letters to', backoff_ms: 'back-off', max_pending: 'pending at most', consumer_ttl_ms: 'idle consumers are removed after',
      max_age_ms: 'age at most', max_length: 'entries at most', max_bytes: 'size at most', acked_age_ms: 'acknowledged entries are removed after',
    },
  },
  browser: {
    title: 'Entries', id: 'Id', age: 'Age', fields: 'Fields', noTime: 'The id is no time.', from: 'From', order: 'Order', newestFirst: 'newest first', oldestFirst: 'oldest first',
    fromPlaceholder: 'latest', fromTitle: 'An id, a moment (2026-11-16 10:30, 10:30, 10m before now), earliest or latest',
    find: 'Find', findPlaceholder: 'text, or field=text', findTitle: 'Finds entries with this text in a value. field=text looks into one field.', in: 'in', anyField: 'any field', go: 'Go',
    badPosition: (/** @type {string} */ typed) => `"${typed}" is no position. Type an id, a moment such as 2026-11-16 10:30 or 10m, earliest or latest.`,
    empty: 'No entries here.', export: 'Export JSON', reload: 'Reload', noMore: 'There are no newer entries.', copyIds: 'Copy ids',
    delete: (/** @type {number} */ n) => `Delete ${n.toLocaleString()}…`, stop: 'Stop', goOn: 'Go on', endSearch: 'End the search', found: 'Entries found', searching: 'Searching…', notFound: 'Nothing found.',
    searched: (/** @type {string} */ scanned, /** @type {string} */ found) => `Looked at ${scanned} entries, ${found} found.`,
    ends: { done: 'That is all.', scan: 'The search stops here, at its limit of entries.', bytes: 'The search stops here, at its limit of bytes.', time: 'The search stops here, at its limit of time.', found: 'The search stops here, with enough found.', stopped: 'Stopped.', error: '' },
  },
  streamActions: {
    addTo: 'Add a message to', form: 'Write as', forms: /** @type {[string, string][]} */ ([['fields', 'Fields'], ['json', 'JSON']]), fieldName: 'Field', fieldValue: 'Value', removeField: 'Remove the field', addField: 'Another field',
    jsonLabel: 'A JSON object; its members become fields', jsonHint: 'Texts are stored as they are, other values as JSON.', notObject: 'Expected an object: { "field": "value" }',
    more: 'Delay, producer', delay: 'Add after', producer: 'Producer', iid: 'Message id of the producer', badDuration: 'Expected a duration such as 10m', halfIid: 'Producer and message id belong together',
    addButton: 'Add the message', added: (/** @type {string} */ id) => `Added ${id}.`, delayed: 'The message waits for its time.',
    createGroup: 'Create a group of', groupName: 'Name', start: 'It starts with', startId: 'Id', create: 'Create the group',
    starts: /** @type {[string, string][]} */ ([['earliest', 'the first entry of the stream'], ['latest', 'the entries added from now on'], ['id', 'the entries after an id']]),
    groupCreated: (/** @type {string} */ group) => `Created the group ${group}.`, groupExists: (/** @type {string} */ group) => `The group ${group} exists already. It has not changed.`,
    trim: 'Trim', trimBy: 'Limit', trimBys: /** @type {[string, string][]} */ ([['length', 'Keep the newest'], ['age', 'Keep from a moment or id']]), maxLength: 'Number of entries to keep', minId: 'Keep entries from', minIdHint: 'An id, a moment, or a duration before now such as 7d',
    keepUnread: 'Keep entries that a group has not acknowledged, even beyond the limit', trimPlan: 'will be removed permanently.',
    loses: (/** @type {string} */ unread, /** @type {string} */ pending) => `loses ${unread} unread and ${pending} pending entries.`,
    trimButton: (/** @type {number} */ n, /** @type {string} */ stream) => `Trim ${n.toLocaleString()} ${noun(n, 'entry', 'entries')} of ${short(stream)}`, trimmed: (/** @type {number} */ n) => `Removed ${n.toLocaleString()} ${noun(n, 'entry', 'entries')}.`,
    deleteFrom: 'Delete entries of', deletePlan: 'will be deleted permanently, also for groups that have not read them.',
    deleteButton: (/** @type {number} */ n, /** @type {string} */ stream) => `Delete ${n.toLocaleString()} ${noun(n, 'entry', 'entries')} of ${short(stream)}`, deleted: (/** @type {string} */ n) => `Deleted ${n}.`,
  },
  group: {
    toPending: 'Pending entries', toDead: 'Dead letters', toTail: 'Live tail', toWorkers: 'Workers', waysOut: 'What to do, with the command line', reset: 'Reset…', remove: 'Remove…', consumers: 'Consumers', allPending: 'Pending entries',
    caughtUp: 'The group has read everything.', at: (/** @type {string} */ time) => `The group will have read everything in ${time}, if the rates stay as they are.`,
    never: 'The group does not catch up: its lag does not shrink.', neverGrows: (/** @type {string} */ by) => `The group does not catch up: its lag grows by ${by}.`,
    etaUnknown: 'The rates are not known yet.', etaInexact: 'The store cannot count the lag exactly, so nobody knows when it will be gone.',
    lagChange: 'Lag changes by', since: 'since', waiting: 'Waiting for retry', waitingHint: 'Pending entries whose next attempt is due later', missed: 'Missed', missedHint: 'Entries that were trimmed or deleted before the group read them', missedUnknown: 'The store does not know.',
  },
  groupCharts: { title: 'History', more: 'Pending and oldest unread over time', range: 'Range', rates: 'Rates per second', lag: 'Lag', in: 'In', out: 'Out', pending: 'Pending', oldest: 'Oldest unread' },
  groupParts: {
    title: 'Consumers of the group', consumer: 'Consumer', asked: 'Asked', askedHint: 'Time since the consumer last asked for entries', got: 'Got', gotHint: 'Time since the consumer last got an entry', worker: 'Worker', remove: 'Remove…',
    neverAsked: 'The consumer has asked for nothing yet.', gotUnknown: 'The store does not know, or the consumer got nothing yet.', noHeartbeat: 'no heartbeat: another client',
    hostTitle: 'Host and process id', slotsTitle: 'Busy slots and all slots', late: (/** @type {string} */ time) => `no heartbeat for ${time}`, slots: (/** @type {number} */ busy, /** @type {number} */ slots) => `${busy}/${slots} busy`, none: 'The group has no consumers.',
    histogram: 'Pending entries by idle time', nothingPending: 'Nothing is pending.', scanned: (/** @type {string} */ entries) => `Counted over the first ${entries}; there are more.`, oldestPending: 'The oldest pending entry has the age', released: (/** @type {string} */ entries) => `${entries} released: any consumer can claim them.`,
    over: (/** @type {string} */ time) => `over ${time}`, under: (/** @type {string} */ time) => `under ${time}`,
  },
  groupActions: {
    remove: 'Remove the group', force: 'Also if consumers are at work', removePlan: 'The group loses its position and its consumers. The entries of the stream stay.',
    dropped: (/** @type {string} */ entries) => `It forgets ${entries} that are pending: nobody will handle them again.`, nothingDropped: 'Nothing is pending.',
    removeButton: (/** @type {string} */ group, /** @type {string} */ stream) => `Remove ${short(group)} of ${short(stream)}`, active: (/** @type {string} */ names) => `Consumers are at work: ${names}. Stop them first, or tick the box above.`, removed: (/** @type {string} */ group) => `Removed the group ${group}.`,
    removeConsumer: 'Remove the consumer', heir: 'Its pending entries go to', heirHint: 'The heir gets them in the same step.', noHeir: 'nobody', moves: (/** @type {string} */ entries, /** @type {string} */ heir) => `${entries} move to ${heir || 'nobody'}.`, holdsNothing: 'It holds no pending entries.', heirIsNew: 'The heir is a new consumer.',
    needsHeir: 'The consumer holds entries: choose who takes them over.', consumerButton: (/** @type {string} */ name) => `Remove ${short(name)}`, consumerRemoved: (/** @type {string} */ name) => `Removed the consumer ${name}.`,
  },
  entry: {
    one: 'entry', many: 'entries', of: 'of', copyId: 'Copy id', again: 'Add again', delete: 'Delete…', added: 'Added', ago: 'ago', field: 'field', fields: 'fields', trace: 'trace', fieldsTitle: 'Fields',
    life: 'What each group did with it', noGroups: 'No group reads this stream.', by: 'by', released: 'released: any consumer can claim it', idle: 'idle', delivery: 'delivery', deliveries: 'deliveries', due: 'next attempt',
    states: { unread: 'unread', pending: 'pending', read: 'done' },
    letter: { title: 'Dead letter', reason: 'Reason', error: 'Error', errorType: 'Error type', origin: 'Original entry', group: 'Group', consumer: 'Consumer', deliveries: 'Deliveries', firstSeen: 'First delivered', died: 'Dead-lettered', redrives: 'Redrives', redrive: 'Redrive…' },
  },
  tail: {
    title: 'Live tail', following: 'following', paused: 'paused', scrolled: 'scrolled up; new lines come below', pause: 'Pause', resume: 'Continue', clear: 'Clear', toEnd: 'To the end', find: 'Find', show: 'Show', entries: 'entries as they come',
    groupAtWork: (/** @type {string} */ group) => `${short(group)} at work`, lines: (/** @type {string} */ n) => `${n} lines`, waiting: 'Waiting for the next entry…', waitingGroup: 'Waiting for the group to do something. An entry that is delivered and acknowledged between two looks does not appear.', waitingFor: (/** @type {string} */ find) => `Waiting for an entry with "${find}"…`,
    note: 'The page reads without joining a group: nothing is delivered. It keeps 1,000 lines.', skipped: (/** @type {string} */ n) => `${n} entries passed over: too fast to show`,
    events: { unread: 'unread', pending: 'pending', done: 'done' }, progress: (/** @type {string} */ lag, /** @type {string} */ pending) => `lag ${lag}, pending ${pending}`,
  },
};
