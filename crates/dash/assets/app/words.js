// @ts-check
/** All words of the pages, by page. A translation replaces this module. */

/** @param {number} value @param {string} one @param {string} many */
const noun = (value, one, many) => (value === 1 ? one : many);

export const words = {
  nav: {
    overview: 'Overview', help: 'Help', pages: 'Pages', skip: 'Skip to the content',
  },
  head: {
    readOnly: 'read-only', readOnlyTitle: 'This dashboard was started read-only: it has no actions.',
    find: 'Find', menu: 'Display, keys, help', keys: 'Keys', logout: 'Log out', theme: 'Theme',
    themes: /** @type {[string, string][]} */ ([['system', 'System'], ['light', 'Light'], ['dark', 'Dark']]),
    compact: 'Compact rows', letterKeys: 'Single letters are keys',
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
      `${label} in ${span}: from ${first} to ${last}, lowest ${lowest}, highest ${highest}; it ${{ grows: 'grows', shrinks: 'shrinks', steady: 'is steady', unknown: 'has too few values for a trend' }[trend]}.`,
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
    hidden: '(hidden)', hiddenTitle: 'Hidden: the name of the field matches a rule of --redact, or the dashboard shows no payloads.',
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
    health: 'Health', length: 'Entries', all: 'All',
    lagHint: 'Entries that the group has not read yet', trendHint: 'Lag of the last five minutes', oldestHint: 'Age of the oldest entry that the group has not read',
    pendingHint: 'Entries that consumers have read and not acknowledged', stuckHint: 'Pending entries that nobody has worked on for long, or that were delivered again and again',
    etaHint: 'When the group will have read everything, if the rates stay as they are', deadHint: 'Entries in the dead-letter stream',
    well: 'Everything is well.', empty: 'The store has no streams.', nothing: 'No stream or group matches.',
    counts: (/** @type {number} */ critical, /** @type {number} */ degraded, /** @type {number} */ ok) =>
      [critical > 0 && `${critical.toLocaleString()} ${noun(critical, 'group is', 'groups are')} critical`, degraded > 0 && `${degraded.toLocaleString()} degraded`, `${ok.toLocaleString()} ok`].filter(Boolean).join(', '),
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
  tail: { title: 'Live tail' },
};
