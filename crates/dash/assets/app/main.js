// @ts-check
/** Starts the pages: asks what the dashboard is, and draws. */

import './preferences.js';
import { App } from './app.js';
import { html, render } from './html.js';

const root = document.getElementById('app');
if (root) render(html`<${App} />`, root);
