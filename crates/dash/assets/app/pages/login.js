// @ts-check
/** The login page, and the page for addresses that do not exist. */

import { Problem, post } from '../api.js';
import { html, useState } from '../html.js';
import { words } from '../words.js';
import { Field, Link, ProblemNote } from '../ui/parts.js';

/** @param {{ status: any, onLogin: () => void }} props */
export function LoginPage({ status, onLogin }) {
  const [problem, setProblem] = useState(/** @type {Problem | null} */ (null));
  const [busy, setBusy] = useState(false);
  const withUser = status?.login === 'user';
  const submit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    setBusy(true);
    setProblem(null);
    try {
      await post('/session', { user: (withUser && form.get('user')) || undefined, password: form.get('password') });
      onLogin();
    } catch (error) {
      setProblem(/** @type {Problem} */ (error));
    }
    setBusy(false);
  };
  return html`<main class="alone" id="main">
    <form class="panel login" onSubmit=${submit}>
      <h1>millstream</h1>
      <p>${withUser ? words.login.user : words.login.password}</p>
      ${withUser && html`<${Field} label=${words.login.userLabel}><input name="user" autocomplete="username" placeholder="default" autofocus /><//>`}
      <${Field} label=${words.login.passwordLabel}><input name="password" type="password" autocomplete="current-password" required autofocus=${!withUser} /><//>
      ${problem && html`<${ProblemNote} problem=${problem} />`}
      <button type="submit" class="primary" disabled=${busy}>${words.login.submit}</button>
    </form>
  </main>`;
}

export function NotFoundPage() {
  return html`<div class="alone"><h1>${words.errors.notFound}</h1><p>${words.errors.notFoundText}</p><p><${Link} page="">${words.nav.overview}<//></p></div>`;
}
