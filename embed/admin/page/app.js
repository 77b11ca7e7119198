// The shell: who is asked, how it is, and which view is shown. The view and what it shows are in
// the address after "#", so that a link can be sent.

import { get, setToken, token } from './api.js';
import { ask, badge, button, field, h, put } from './dom.js';
import * as ensemble from './view_ensemble.js';
import * as tree from './view_tree.js';
import * as locks from './view_locks.js';
import * as sessions from './view_sessions.js';
import * as watches from './view_watches.js';
import * as events from './view_events.js';
import * as backup from './view_backup.js';

const views = { ensemble, tree, locks, sessions, watches, events, backup };
const period = 2000;

const app = {
  status: null,   // of v1/status, as of the newest answer
  grant: null,    // who asks: {name, role}
  view: null,     // {element, refresh?, close?}
  name: '',
  /** may reports whether the one who asks has at least a role. */
  may(role) { return roles.indexOf(app.grant?.role) >= roles.indexOf(role); },
  /** go shows a view with a query. */
  go(name, query) { location.hash = link(name, query); },
  link,
  /** say tells what was done, or that it failed. */
  say,
  /** refresh asks anew at once. */
  refresh,
};

const roles = ['viewer', 'operator', 'editor']; // each may do what those before it may

function link(name, query) {
  const q = new URLSearchParams(query).toString();
  return `#${name}${q ? `?${q}` : ''}`;
}

const parts = {
  state: h('span', null),
  where: h('span', { class: 'where' }),
  tabs: h('nav', { class: 'tabs', 'aria-label': 'Views' }),
  trouble: h('div', { class: 'trouble', role: 'alert' }),
  said: h('div', { role: 'status', class: 'visually-hidden' }),
  main: h('main', { id: 'main', tabindex: '-1' }),
  login: button('Sign in', signIn, { class: 'small' }),
};

document.body.append(
  h('a', { class: 'skip', href: '#main', on: { click: (e) => { e.preventDefault(); parts.main.focus(); } } }, 'Skip to the content'),
  h('header', { class: 'head' },
    h('span', { class: 'brand' }, mark(), 'Vivarium'), parts.where,
    h('span', { class: 'push' }, parts.state, parts.login)),
  parts.tabs,
  h('div', null, parts.trouble, parts.main), parts.said);

function mark() {
  return h('svg', { viewBox: '0 0 24 24', 'aria-hidden': 'true' },
    h('path', { d: 'M4 20V9a8 8 0 0 1 16 0v11zM12 20v-8M12 14c-3 0-4-2-4-4M12 12c2.5 0 3.5-1.5 3.5-3.5' }));
}

put(parts.tabs, Object.entries(views).map(([name, v]) => h('a', { href: `#${name}`, data: { view: name } }, v.title)));

/** show brings up the view that the address names. */
async function show() {
  document.querySelector('dialog')?.close('cancel'); // it was about what was shown
  const [name, query] = location.hash.slice(1).split(/\?(.*)/s);
  const view = views[name] || ensemble, shown = views[name] ? name : 'ensemble';
  const q = new URLSearchParams(query || '');
  for (const a of parts.tabs.children) a.dataset.view === shown ? a.setAttribute('aria-current', 'page') : a.removeAttribute('aria-current');
  if (app.view?.navigate && app.name === shown) return app.view.navigate(q);
  app.view?.close?.();
  const moved = app.name !== '' && app.name !== shown;
  app.name = shown;
  document.title = `${view.title} · Vivarium`;
  put(parts.main);
  app.view = view.open(app, q);
  put(parts.main, app.view.element);
  if (moved) parts.main.focus({ preventScroll: true });
  await app.view.refresh?.().catch(failed);
}

let asking = false;

/** refresh asks how the member is, and has the view ask what it shows. */
async function refresh() {
  if (asking || document.hidden) return;
  asking = true;
  try {
    app.status = await get('v1/status');
    app.grant = app.status.grant;
    head();
    if (app.status.ready || app.name === 'ensemble') { // that view says more about it
      if (trouble) put(parts.trouble);
      trouble = '';
    } else {
      complain('warn', 'This member is not ready, so what it shows may be old.');
    }
    parts.main.hidden = false;
    await app.view?.refresh?.();
  } catch (e) {
    failed(e);
  } finally {
    asking = false;
  }
}

function failed(e) {
  if (e.name === 'AbortError') return;
  if (e.status === 401) {
    put(parts.state, badge('not signed in', 'warn'));
    put(parts.login, 'Sign in');
    parts.main.hidden = true;
    if (e.as || !trouble) complain('warn', e.as ? 'This member does not know the token. ' : 'This member wants to know who asks. ', button('Sign in', signIn, { class: 'small' }));
    return;
  }
  if (e.status === 0) put(parts.state, badge('no answer', 'bad'));
  complain('bad', h('strong', null, e.status === 0 ? 'No answer. ' : 'Not shown. '), e.message);
}

let trouble = '';

/** complain shows what is wrong. A screen reader reads it when it changes, not with each refresh. */
function complain(kind, ...what) {
  const notice = h('div', { class: `notice ${kind}` }, what);
  if (notice.textContent === trouble) return;
  trouble = notice.textContent;
  put(parts.trouble, notice);
}

function head() {
  const s = app.status;
  put(parts.where, s.ensemble ? `${s.ensemble} · ` : '', `member ${s.member}`);
  put(parts.state, s.ready ? badge('ready', 'good') : badge(s.over ? 'failed' : 'not ready', 'bad', s.waiting));
  put(parts.login, token() ? `Sign out ${app.grant?.name || ''}` : 'Sign in');
  parts.login.hidden = !token() && Boolean(app.grant);
}

let nextWord = 0;

/** say tells a screen reader, and shows it for a while. Polite: at most once in 5 s for what repeats. */
function say(text, kind) {
  const note = h('div', { class: `notice ${kind || 'good'}` }, text);
  parts.main.prepend(note);
  setTimeout(() => note.remove(), kind === 'bad' ? 15000 : 6000);
  clearTimeout(nextWord);
  nextWord = setTimeout(() => put(parts.said, text), 50);
}

async function signIn() {
  if (token()) {
    setToken('');
    location.reload();
    return;
  }
  const form = await ask('Sign in', [
    h('p', { class: 'quiet' }, 'The token stays in this tab, and is sent in a header with each question.'),
    field('Token', 'token', { type: 'password', required: true, autofocus: true }),
  ], 'Sign in');
  if (!form) return;
  setToken(form.get('token').trim());
  location.reload();
}

addEventListener('hashchange', show);
document.addEventListener('visibilitychange', refresh);
await refresh();
await show();
setInterval(refresh, period);
