/** A person at a browser: presses controls and counts the presses, and notices everything that a page must not do. Knows no single page. */

import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import { chromium } from 'playwright-core';

const BROWSER = process.env.MILLSTREAM_BROWSER ?? '/usr/bin/chromium-headless-shell';
/** Folder of the screenshots. */
export const SHOTS = process.env.MILLSTREAM_SHOTS ?? 'dash-screenshots';
/** How long to wait for anything. It only ends tests that fail. */
const PATIENCE_MS = 60_000;

export const DESKTOP = { width: 1280, height: 800 };
export const PHONE = { width: 360, height: 740 };

/** Options that make pictures equal on all machines. */
const ARGS = ['--disable-dev-shm-usage', '--disable-gpu', '--hide-scrollbars', '--force-device-scale-factor=1', '--font-render-hinting=none', '--disable-lcd-text', '--force-color-profile=srgb', '--lang=en-US'];
// The browser refuses to run in its sandbox as root.
if (process.getuid?.() === 0) ARGS.push('--no-sandbox');

/** Starts the browser. */
export const startBrowser = () => chromium.launch({ executablePath: BROWSER, args: ARGS, env: { ...process.env, TZ: 'UTC' } });

const axeSource = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

/** Waits until a check passes. Fails with what the check says last. @template T @param {() => Promise<T> | T} check @returns {Promise<T>} */
export async function eventually(check) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() > deadline) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

export class Visitor {
  /** @param {import('playwright-core').Page} page @param {string} base */
  constructor(page, base) {
    this.page = page;
    this.base = base;
    /** Presses on controls, choices in lists, and Enter. */
    this.presses = 0;
    /** What the page must not do: errors, dialogs, requests to other hosts, reports of the security policies. @type {string[]} */
    this.offences = [];
    /** Console errors that a test expects. @type {RegExp[]} */
    this.expected = [];
    page.setDefaultTimeout(PATIENCE_MS);
    page.on('console', (message) => message.type() === 'error' && this.#offend(`console: ${message.text()} ${message.location().url}`));
    page.on('pageerror', (error) => this.#offend(`exception: ${error.stack}`));
    page.on('dialog', (dialog) => {
      this.#offend(`dialog: ${dialog.message()}`);
      dialog.dismiss().catch(() => {});
    });
    page.on('request', (request) => new URL(request.url()).protocol.startsWith('http') && !request.url().startsWith(new URL(base).origin) && this.#offend(`request to ${request.url()}`));
  }

  /** Opens a page in a browser window of its own. @param {import('playwright-core').Browser} browser @param {string} base @param {{ viewport?: { width: number, height: number }, dark?: boolean, path?: string }} [options] */
  static async open(browser, base, { viewport = DESKTOP, dark = false, path = '' } = {}) {
    const context = await browser.newContext({ viewport, colorScheme: dark ? 'dark' : 'light', reducedMotion: 'reduce', locale: 'en-US', timezoneId: 'UTC', hasTouch: viewport === PHONE, permissions: ['clipboard-read', 'clipboard-write'] });
    const visitor = new Visitor(await context.newPage(), base);
    await context.exposeBinding('reportOffence', (_, text) => visitor.#offend(text));
    await context.addInitScript(() => {
      addEventListener('securitypolicyviolation', (event) => window.reportOffence(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
      window.longTasks = [];
      new PerformanceObserver((list) => window.longTasks.push(...list.getEntries().map((entry) => Math.round(entry.duration)))).observe({ type: 'longtask', buffered: true });
    });
    await visitor.goto(path);
    return visitor;
  }

  #offend(text) {
    if (!this.expected.some((pattern) => pattern.test(text))) this.offences.push(text);
  }

  /** Opens the address of a page and waits until the page shows it. @param {string} path */
  async goto(path) {
    await this.page.goto(new URL(path, this.base).href, { waitUntil: 'domcontentloaded' });
    await this.loaded();
  }

  /** Waits until nothing says that it loads. */
  async loaded() {
    await this.page.locator('main').first().waitFor();
    await this.page.waitForFunction(() => !document.querySelector('.loading') && document.querySelector('main')?.textContent !== '');
  }

  /** @param {string} selector @param {{ hasText?: string | RegExp }} [options] */
  find(selector, options) {
    return this.page.locator(selector, options);
  }

  /** Presses a control. @param {import('playwright-core').Locator | string} control */
  async press(control) {
    await (typeof control === 'string' ? this.page.locator(control) : control).first().click();
    this.presses += 1;
  }

  /** Presses the button or link with this name. @param {'button' | 'link' | 'checkbox'} role @param {string | RegExp} name */
  async pressNamed(role, name) {
    await this.press(this.page.getByRole(role, { name, exact: true }));
  }

  /** Types a text into a field. Typing is not counted. @param {import('playwright-core').Locator | string} field @param {string} text */
  async type(field, text) {
    await (typeof field === 'string' ? this.page.locator(field) : field).first().fill(text);
  }

  /** Presses keys, one after another. Only Enter counts. @param {...string} keys */
  async keys(...keys) {
    for (const key of keys) {
      await this.page.keyboard.press(key);
      if (key === 'Enter') this.presses += 1;
    }
  }

  /** Moves the focus with Tab until it is on this control. @param {import('playwright-core').Locator} control */
  async tabTo(control) {
    await control.first().waitFor();
    for (let at = 0; at < 150; at += 1) {
      if (await control.first().evaluate((element) => element === document.activeElement).catch(() => false)) return;
      await this.page.keyboard.press('Tab');
    }
    throw new Error(`the focus does not reach ${control}`);
  }

  /** Waits for a text in the page. @param {string | RegExp} text @param {string} [within] */
  async sees(text, within = 'body') {
    await this.page.locator(within).filter({ hasText: text }).first().waitFor().catch(async () => {
      throw new Error(`${within} does not show ${text}; it shows:\n${(await this.page.locator(within).allInnerTexts()).join('\n').slice(0, 4000)}`);
    });
  }

  /** Returns the text of an element. @param {string} selector */
  text(selector) {
    return this.page.locator(selector).first().innerText();
  }

  /** The command line that the open dialog or page shows. @param {string} [within] */
  async cliLine(within = 'dialog') {
    return (await this.page.locator(`${within} .cli code`).first().textContent()) ?? '';
  }

  /** Fails if the task took more presses. @param {number} most */
  took(most) {
    assert.ok(this.presses <= most, `took ${this.presses} presses instead of at most ${most}`);
  }

  /** Saves a picture of the page. @param {string} name @param {boolean} [whole] */
  async shot(name, whole = false) {
    mkdirSync(SHOTS, { recursive: true });
    const path = join(SHOTS, `${name}.png`);
    await this.page.screenshot({ path, fullPage: whole });
    return path;
  }

  /** Fails if the page did what no page may do. */
  async behaves() {
    assert.equal(await this.page.evaluate(() => window.pwned), undefined, 'a hostile text has run as a script');
    assert.deepEqual(this.offences, [], `offences on ${this.page.url()}`);
  }

  /** Fails if the page breaks a rule of WCAG 2.2 AA that axe knows. */
  async isAccessible() {
    if (!(await this.page.evaluate(() => 'axe' in window))) await this.page.evaluate((await import('node:fs')).readFileSync(axeSource, 'utf8'));
    const { violations } = await this.page.evaluate(() => window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa'], rules: { 'landmark-unique': { enabled: true }, 'empty-table-header': { enabled: true } }, resultTypes: ['violations'] }));
    const found = violations.map((each) => `${each.id}: ${each.help}\n${each.nodes.slice(0, 3).map((node) => `  ${node.html.slice(0, 300)}\n    ${node.failureSummary.replaceAll('\n', ' ')}`).join('\n')}`);
    assert.deepEqual(found, [], `${this.page.url()} is not accessible:\n${found.join('\n')}`);
  }

  /** Returns what is wider than the place that it has: the page, or parts of a dialog. */
  tooWide() {
    return this.page.evaluate(() => [document.documentElement, ...document.querySelectorAll('dialog[open], dialog[open] *')]
      .filter((element) => !['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(element).overflowX) || element.tagName === 'DIALOG')
      .filter((element) => element.clientWidth > 0 && element.scrollWidth > element.clientWidth + 1)
      .map((element) => `${element.tagName} ${element.className}: ${element.scrollWidth} px in ${element.clientWidth} px`));
  }

  /** Returns the texts of elements that do not fit. @param {string} selector */
  cutOff(selector) {
    return this.page.locator(selector).evaluateAll((all) => all.filter((element) => element.scrollWidth > element.clientWidth + 1).map((element) => element.textContent));
  }

  close() {
    return this.page.context().close();
  }
}

/**
 * Defines a test with a visitor. If it fails, it says what the page showed, and where the picture is.
 * @param {string} name @param {() => Promise<Visitor>} come @param {(visitor: Visitor) => Promise<void>} body
 */
export function visit(name, come, body) {
  test(name, async () => {
    const visitor = await come();
    try {
      await body(visitor);
      await visitor.behaves();
    } catch (error) {
      const picture = await visitor.shot(`failed ${name}`.replace(/[^\w.-]+/g, '-'), true).catch((failure) => `no picture: ${failure.message}`);
      const shown = await visitor.page.locator('body').innerText().catch(() => '');
      error.message += `\nat ${visitor.page.url()}\npicture: ${picture}\noffences: ${visitor.offences.join('\n') || 'none'}\nthe page shows:\n${shown.slice(0, 3000)}`;
      throw error;
    } finally {
      await visitor.close();
    }
  });
}
