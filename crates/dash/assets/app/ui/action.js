// @ts-check
/**
 * Runs an action that destroys or moves something: fill in, see a preview with a number, confirm by naming the thing.
 *
 * From `TYPE_FROM` things on, the visitor types their number. The action carries the digest of the preview. If the world has moved
 * since, the server refuses, and the dialog shows the new preview.
 */

import { Problem, post } from '../api.js';
import { count } from '../format.js';
import { html, useEffect, useRef, useState } from '../html.js';
import { status } from '../live.js';
import { useObservable } from '../observable.js';
import { words } from '../words.js';
import { Dialog } from './dialog.js';
import { followJob } from './jobs.js';
import { CliLine, ProblemNote } from './parts.js';
import { say } from './toasts.js';

/** From this number of things on, the visitor types the number. */
export const TYPE_FROM = 100;

/** Whether a typed text confirms this number of things. @param {number} number @param {string} typed */
export const isConfirmed = (number, typed) => number < TYPE_FROM || typed.replace(/\D/g, '') === String(number);

/** The field in which the visitor types the number. @param {{ number: number, typed: string, onInput: (typed: string) => void }} props */
export function TypeNumber({ number, typed, onInput }) {
  if (number < TYPE_FROM) return null;
  return html`<label class="field"><span class="field-label">${words.action.typeNumber(count(number))}</span>
    <input type="text" inputmode="numeric" autocomplete="off" value=${typed} onInput=${(/** @type {any} */ event) => onInput(event.target.value)} /></label>`;
}

/** How long an eager preview waits for the next letter. */
const TYPING_MS = 300;

/**
 * Returns a function that says whether the page may offer an action, such as `/stream/trim`. The server judges each action again,
 * because a user's rights also depend on keys.
 */
export function useMay() {
  const known = useObservable(status);
  return (/** @type {string} */ path) => known !== null && !known.read_only && !known.refused?.includes(path);
}

/**
 * @typedef {object} Plan what a preview says
 * @property {any} text sentences: what will happen
 * @property {number} count number of things concerned
 * @property {string} button the verb and the thing: "Delete 3 entries of orders"
 * @property {string} [refuse] why the action is not possible now
 */

/**
 * @param {object} props
 * @param {any} props.title
 * @param {string} props.path such as `/stream/trim`
 * @param {any} props.body null while the form is incomplete
 * @param {any} [props.form] fields to fill in before the preview
 * @param {boolean} [props.eager] previews by itself as soon as the form is complete, and after each change
 * @param {(plan: any) => Plan} props.describe
 * @param {string | null} [props.cli]
 * @param {(answer: any) => string} [props.done] what to say afterwards
 * @param {(answer: any) => void} [props.onDone]
 * @param {() => void} props.onClose
 */
export function ActionDialog({ title, path, body, form, eager = false, describe, cli = null, done, onDone, onClose }) {
  const [plan, setPlan] = useState(/** @type {{ key: string, answer: any, moved: boolean } | null} */ (null));
  const [problem, setProblem] = useState(/** @type {Problem | null} */ (null));
  const [busy, setBusy] = useState(false);
  const [typed, setTyped] = useState('');
  const key = JSON.stringify(body);
  const latestKey = useRef(key);
  latestKey.current = key;

  const attempt = async (/** @type {() => Promise<void>} */ work) => {
    setBusy(true);
    setProblem(null);
    try {
      await work();
    } catch (error) {
      setProblem(error instanceof Problem ? error : new Problem({ title: String(error) }));
    }
    setBusy(false);
  };
  const preview = () => attempt(async () => {
    const answer = await post(path, { ...body, dry_run: true });
    if (latestKey.current === key) setPlan({ key, answer, moved: false });
  });
  const execute = () => attempt(async () => {
    try {
      const answer = await post(path, { ...body, preview: plan?.answer.preview });
      if (answer?.job) followJob(answer.job);
      say(answer?.job ? words.action.started : done?.(answer) ?? words.action.done);
      onClose();
      onDone?.(answer);
    } catch (error) {
      if (!(error instanceof Problem) || !error.plan) throw error;
      // The plan is new: the visitor confirms this one, or reads in it why the action is refused.
      setTyped('');
      setPlan({ key, answer: error.plan, moved: error.code === 'preview_outdated' });
      if (error.code !== 'preview_outdated') throw error;
    }
  });

  useEffect(() => {
    if (!form && body !== null) preview();
  }, []);
  useEffect(() => {
    if (!eager || body === null) return undefined;
    const timer = setTimeout(preview, TYPING_MS);
    return () => clearTimeout(timer);
  }, [key]);

  const current = plan !== null && plan.key === key ? plan : null;
  const shown = current && describe(current.answer);
  const mayConfirm = shown !== null && !shown.refuse && shown.count > 0 && isConfirmed(shown.count, typed);
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (busy) return;
    if (!current) preview();
    else if (mayConfirm) execute();
  };
  return html`<${Dialog} title=${title} onClose=${onClose} class="action">
    <form onSubmit=${submit}>
      ${form}
      ${problem && html`<${ProblemNote} problem=${problem} retry=${form ? undefined : preview} />`}
      <div class="plan" aria-live="polite">
        ${current?.moved && html`<p class="note warn">${words.action.moved}</p>`}
        ${shown?.text}
        ${shown?.refuse && html`<p class="note warn">${shown.refuse}</p>`}
        ${!current && !problem && !form && html`<p class="loading">${words.action.looking}</p>`}
      </div>
      ${shown && !shown.refuse && html`<${TypeNumber} number=${shown.count} typed=${typed} onInput=${setTyped} />`}
      <${CliLine} line=${cli} />
      <footer class="actions">
        <button type="button" onClick=${onClose}>${words.action.cancel}</button>
        ${current
          ? html`<button type="submit" class="danger" disabled=${!mayConfirm || busy}>${shown?.button}</button>`
          : html`<button type="submit" class="primary" disabled=${body === null || busy}>${words.action.preview}</button>`}
      </footer>
    </form>
  <//>`;
}
