// @ts-check
/** Shows the long actions that run in the dashboard's process, with their progress and a button that stops them. */

import { get, remove } from '../api.js';
import { count, duration, rate } from '../format.js';
import { html, useEffect } from '../html.js';
import { jobs } from '../live.js';
import { useObservable } from '../observable.js';
import { words } from '../words.js';
import { Name } from './parts.js';
import { say } from './toasts.js';

const POLL_MS = 1000;
/** How long a job stays in the tray after its end. */
const KEEP_MS = 20_000;

/** Shows a job that has just started. @param {string} id */
export function followJob(id) {
  if (!jobs.value[id]) jobs.set({ ...jobs.value, [id]: { id, kind: '', state: 'running', done: 0, total: null } });
}

/** Asks for the running jobs, because events may come late. */
async function poll() {
  for (const job of Object.values(jobs.value)) {
    if (job.state !== 'running') continue;
    const answer = await get('/job', { id: job.id }).catch((problem) => (problem.status === 404 ? { ...job, state: 'gone' } : job));
    jobs.set({ ...jobs.value, [job.id]: answer });
  }
}

/** The jobs at the edge of the page. */
export function JobTray() {
  const all = Object.values(useObservable(jobs)).filter((job) => job.state === 'running' || (job.state !== 'gone' && Date.now() - (job.ended_ms ?? 0) < KEEP_MS));
  const running = all.some((job) => job.state === 'running');
  useEffect(() => {
    get('/jobs').then((list) => jobs.set(Object.fromEntries((list.items ?? list).map((/** @type {any} */ job) => [job.id, job]))), () => {});
  }, []);
  useEffect(() => {
    if (all.length === 0) return undefined;
    const timer = setInterval(() => (running ? poll() : jobs.set({ ...jobs.value })), POLL_MS);
    return () => clearInterval(timer);
  }, [running, all.length]);
  if (all.length === 0) return null;
  return html`<aside class="job-tray" aria-label=${words.jobs.title}>${all.map((job) => html`<${Job} key=${job.id} job=${job} />`)}</aside>`;
}

/** One job: what it does, how far it is, and its end. @param {{ job: any }} props */
export function Job({ job }) {
  const stop = () => remove('/job', { id: job.id }).then(() => poll(), (problem) => say(problem.message));
  const left = job.state === 'running' && job.rate > 0 && job.total > job.done ? ((job.total - job.done) / job.rate) * 1000 : null;
  return html`<div class=${`job ${job.state}`}>
    <div class="job-line"><strong>${words.jobs.kinds[/** @type {'redrive'} */ (job.kind)] ?? job.kind}</strong> ${job.stream && html`<${Name} name=${job.stream} max=${30} />`}
      <span class="job-count">${count(job.done)}${job.total !== null && job.total !== undefined && ` / ${count(job.total)}`}</span></div>
    <progress max=${job.total || 1} value=${job.state === 'done' ? job.total || 1 : job.done} aria-label=${words.jobs.progress}></progress>
    <div class="job-line"><span>${words.jobs.states[/** @type {'running'} */ (job.state)] ?? job.state}${job.state === 'running' && job.rate > 0 ? ` · ${rate(job.rate)}` : ''}${left !== null ? ` · ${words.jobs.left(duration(left))}` : ''}${job.error ? ` · ${job.error}` : ''}</span>
      ${job.state === 'running' && html`<button type="button" class="small" onClick=${stop}>${words.jobs.stop}</button>`}</div>
  </div>`;
}
