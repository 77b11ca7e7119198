// The znodes: a lazy tree, and the znode that is selected.

import { get, getBytes, getTagged, send, sendJSON, Failed } from './api.js';
import { ask, badge, button, facts, field, h, put, renew, table } from './dom.js';
import { ago, base, base64, bytes, child, clock, fromBase64, gunzip, hex, number, parent, plural, text } from './format.js';
import { Tree } from './widget_tree.js';

export const title = 'Tree';

const shows = ['text', 'JSON', 'hex', 'base64', 'gzip'];
const kept = new Map(); // path → how its data is shown, while the page is open

export function open(app, query) {
  const detail = h('section', { 'aria-label': 'Znode' });
  const tree = new Tree(loadChildren, (path) => app.go('tree', { path }));
  const jump = h('input', { name: 'path', 'aria-label': 'Path of a znode', placeholder: '/path/of/a/znode', size: 32, autocomplete: 'off', spellcheck: 'false' });
  const name = h('input', { name: 'name', 'aria-label': 'Part of a name', placeholder: 'part of a name', size: 16, autocomplete: 'off', spellcheck: 'false' });
  const found = h('div', { role: 'status' });
  const element = h('div', { class: 'card-stack' },
    h('header', { class: 'title' }, h('h1', null, title),
      h('form', { class: 'row push', role: 'search', on: { submit: (e) => { e.preventDefault(); search(app, found, name.value, shown); } } }, name, h('button', null, 'Search')),
      h('form', { class: 'row', on: { submit: (e) => { e.preventDefault(); app.go('tree', { path: jump.value || '/' }); } } }, jump, h('button', null, 'Open'))),
    found, h('div', { class: 'split' }, tree.element, detail));
  let shown = '', seen = '', aborter = new AbortController();

  async function show(path) {
    if (!path.startsWith('/')) path = `/${path}`;
    aborter.abort();
    aborter = new AbortController();
    shown = path;
    seen = '';
    jump.value = path;
    if (await tree.reveal(path)) tree.expand(path);
    await load(path, aborter.signal);
  }

  async function load(path, signal) {
    try {
      const z = await getTagged('v1/znode', { path, view: 'stat,acl' }, signal);
      const state = [z.etag, z.stat.pzxid, z.stat.aversion].join(' ');
      if (path !== shown || seen === state) return;
      const { bytes: data } = await getBytes('v1/znode', { path, view: 'data' }, signal);
      if (path !== shown || seen === state) return;
      const before = seen;
      seen = state;
      if (before && before.split(' ')[1] !== z.stat.pzxid) tree.changed(path);
      renew(detail, znode(app, tree, path, z, data, before && before.split(' ')[0] !== z.etag));
    } catch (e) {
      if (e.name === 'AbortError' || path !== shown) return;
      if (seen && e.status === 404) tree.changed(parent(path));
      seen = '';
      renew(detail, crumbs(app, path), h('div', { class: 'notice warn' }, e.status === 404 ? 'There is no such znode.' : e.message));
    }
  }

  show(query.get('path') || '/');
  return {
    element,
    navigate(q) { return show(q.get('path') || '/'); },
    async refresh() {
      await load(shown, aborter.signal);
      for (const el of detail.querySelectorAll('time')) put(el, when(el.dateTime));
    },
    close() { aborter.abort(); },
  };
}

const foundMost = 200; // that are shown

/** search lists the znodes at and below a path whose name contains a text. An empty text ends it. */
async function search(app, found, text, path) {
  if (!text.trim()) return put(found);
  put(found, h('p', { class: 'quiet' }, 'Searching …'));
  try {
    const a = await get('v1/find', { path, name: text, limit: foundMost });
    put(found, h('section', { class: 'card', 'aria-label': 'Found' },
      h('header', null, h('h2', null, `${a.more ? `More than ${number(foundMost)} names` : plural(a.paths.length, 'name')} at and below ${path} with “${text}”`), button('Close', () => put(found), { class: 'small' })),
      a.paths.length > 0 && h('ul', { class: 'found' }, a.paths.map((p) => h('li', null, h('a', { class: 'path', href: app.link('tree', { path: p }) }, p))))));
  } catch (e) {
    put(found, h('div', { class: 'notice bad' }, e.message));
  }
}

async function loadChildren(path, after, limit) {
  const a = await get('v1/znode', { path, view: 'children', after, limit });
  return { children: a.children || [], more: a.more };
}

function crumbs(app, path) {
  const names = path === '/' ? [] : path.slice(1).split('/');
  return h('nav', { class: 'crumbs', 'aria-label': 'Path' }, h('a', { href: app.link('tree', { path: '/' }) }, '/'),
    names.map((name, i) => [i > 0 && '/', h('a', { href: app.link('tree', { path: `/${names.slice(0, i + 1).join('/')}` }) }, name)]));
}

function znode(app, tree, path, z, data, changed) {
  const s = z.stat, owned = Boolean(s.owner);
  return h('div', { class: 'card-stack' }, h('div', { class: 'card' },
    h('header', null, crumbs(app, path), h('span', { class: 'row' },
      owned && badge('ephemeral', 'good', 'It goes with its session'), changed && badge('just changed', 'warn'))),
    h('div', { class: 'row' }, button('Copy path', () => copy(app, path), { class: 'small' }),
      app.may('editor') && [
        button('Create a child', () => create(app, tree, path), { class: 'small' }),
        button('Edit data', (e) => edit(app, path, z, data, e.target), { class: 'small' }),
        z.acl && button('Edit ACL', (e) => editACL(app, path, z, e.target), { class: 'small' }),
        path !== '/' && button('Delete', () => remove(app, tree, path, z), { class: 'small danger' })]),
    h('h3', null, `Data, ${bytes(data.length)}`), dataOf(path, data)),
  h('div', { class: 'card' }, h('h3', null, 'Stat'),
    facts(['Created', time(s.ctime)], ['Changed', time(s.mtime)],
      ['Version', `${number(s.version)} · of the children ${number(s.cversion)} · of the ACL ${number(s.aversion)}`],
      ['Zxids', h('span', { class: 'mono' }, `c ${s.czxid} · m ${s.mzxid} · p ${s.pzxid}`)],
      ['Children', number(s.numChildren)],
      ['Owner', owned && h('a', { class: 'mono', href: app.link('sessions', { id: s.owner }) }, s.owner)])),
  table('Who may do what', [
    { head: 'Scheme', cell: (a) => a.scheme }, { head: 'Id', class: 'path', cell: (a) => a.id }, { head: 'May', cell: (a) => perms(a.perms) },
  ], z.acl || [], 'The ACL is not shown.'));
}

function time(t) { return clock(t) && h('time', { datetime: t }, when(t)); }

function when(t) { return `${clock(t)}, ${ago(t)} ago`; }

function perms(p) {
  const words = { r: 'read', w: 'write', c: 'create', d: 'delete', a: 'admin' };
  return [...p].map((letter) => words[letter] || letter).join(', ') || 'nothing';
}

async function copy(app, path) {
  await navigator.clipboard.writeText(path).then(() => app.say('The path is copied.'), () => app.say('This browser does not let a page copy.', 'bad'));
}

/** dataOf shows data, in the way that was chosen for the path or that fits. */
function dataOf(path, data) {
  const box = h('pre', { class: 'data', tabindex: '0', 'aria-label': 'Data' });
  const row = h('div', { class: 'segments', role: 'group', 'aria-label': 'Show data as' });
  const show = async (how) => {
    for (const b of row.children) b.setAttribute('aria-pressed', b.textContent === how);
    box.className = how === 'hex' ? 'data hex' : 'data';
    put(box, await render(data, how));
  };
  put(row, shows.map((how) => button(how, () => { kept.set(path, how); if (kept.size > 1000) kept.delete(kept.keys().next().value); show(how); }, { class: 'small' })));
  show(kept.get(path) || guess(data));
  return data.length === 0 ? h('p', { class: 'none' }, 'It holds no data.') : [row, box];
}

function guess(data) {
  if (data[0] === 0x1f && data[1] === 0x8b) return 'gzip';
  const s = text(data);
  if (s === null) return 'hex';
  try {
    return typeof JSON.parse(s) === 'object' ? 'JSON' : 'text';
  } catch {
    return 'text';
  }
}

async function render(data, how) {
  if (how === 'hex') return hex(data);
  if (how === 'base64') return base64(data);
  if (how === 'gzip') {
    try {
      const opened = await gunzip(data);
      return text(opened) ?? hex(opened);
    } catch {
      return 'It is no gzip.';
    }
  }
  const s = text(data);
  if (s === null) return 'It is no text in UTF-8.';
  if (how !== 'JSON') return s;
  try {
    return JSON.stringify(JSON.parse(s), null, 2);
  } catch (e) {
    return `It is no JSON: ${e.message}\n\n${s}`;
  }
}

function same(a, b) { return a.length === b.length && a.every((x, i) => x === b[i]); }

/** edit replaces the data, if the znode is still the one that was read. */
async function edit(app, path, z, data, opener) {
  // What a text field would alter is edited in base64: line ends, and a mark at the beginning.
  const own = text(data), binary = own === null || own.includes('\r') || own.length === 0 && data.length > 0 || !same(new TextEncoder().encode(own), data);
  const area = h('textarea', { name: 'data', spellcheck: 'false', 'aria-label': binary ? 'Data in base64' : 'Data', autofocus: true });
  area.value = binary ? base64(data) : own;
  let etag = z.etag, failure = null;
  for (;;) { // until it is saved or given up: what was typed is not lost
    const form = await ask(`Data of ${base(path) || '/'}`, [failure && h('div', { class: 'notice bad', role: 'alert' }, failure),
      binary && h('p', { class: 'quiet' }, 'It is no plain text, so it is shown in base64.'), area, reasonField()], 'Save');
    opener?.focus?.();
    if (!form) return;
    failure = null;
    try {
      const octets = binary ? fromBase64(area.value) : new TextEncoder().encode(area.value);
      await send('PUT', 'v1/znode', { query: { path, reason: form.get('reason') }, body: octets, headers: { 'If-Match': etag, 'Content-Type': 'application/octet-stream' } });
      app.say('Saved.');
      return app.refresh();
    } catch (e) {
      if (!(e instanceof Failed)) failure = 'It is no base64.';
      else if (e.status !== 412 && e.status !== 404) failure = outcome(e);
      else if ((etag = await conflict(path, area, binary)) === null) return;
    }
  }
}

/** editACL replaces the ACL, if it is still the one that was read. */
async function editACL(app, path, z, opener) {
  const area = h('textarea', { name: 'acl', spellcheck: 'false', 'aria-label': 'Entries', autofocus: true });
  area.value = z.acl.map((a) => `${a.scheme}:${a.id}:${a.perms}`).join('\n');
  let failure = null;
  for (;;) {
    const form = await ask(`ACL of ${base(path) || '/'}`, [failure && h('div', { class: 'notice bad', role: 'alert' }, failure),
      h('p', { class: 'quiet' }, 'A line is an entry: scheme, id, and some of c, d, r, w, a, as in world:anyone:cdrwa.'), area, reasonField()], 'Save');
    opener?.focus?.();
    if (!form) return;
    const acl = area.value.split('\n').map((line) => line.trim()).filter(Boolean)
      .map((line) => ({ scheme: line.split(':')[0], id: line.split(':').slice(1, -1).join(':'), perms: line.split(':').at(-1) }));
    if (!acl.some((a) => a.perms.includes('a')) &&
      !await ask('Nobody could change it again', h('p', null, 'No entry has “a”, admin. Only a superuser could then change the ACL.'), 'Save nevertheless', 'danger')) continue;
    try {
      await sendJSON('PUT', 'v1/acl', { acl }, { path, aversion: String(z.stat.aversion), reason: form.get('reason') });
      app.say('The ACL is saved.');
      return app.refresh();
    } catch (e) {
      failure = e.status === 412 ? 'Nothing was changed. Somebody else has changed the ACL meanwhile: close this and look at it.' : outcome(e);
    }
  }
}

/** conflict shows both versions side by side. It returns the ETag of the one that is there now. */
async function conflict(path, area, binary) {
  const now = await getTagged('v1/znode', { path, view: 'stat' }).catch(() => null);
  if (!now) {
    await ask('It is gone', [h('p', null, 'Somebody has deleted the znode meanwhile. Nothing was saved. This is what you wrote:'), h('pre', { class: 'data' }, area.value)], 'Close');
    return null;
  }
  const { bytes: theirs } = await getBytes('v1/znode', { path, view: 'data' });
  const form = await ask('Somebody else has changed it', [
    h('p', null, 'Nothing was saved. Edit yours on, with theirs in view, or cancel.'),
    h('div', { class: 'sides' }, h('div', null, h('h3', null, 'Yours'), h('pre', { class: 'data' }, area.value)),
      h('div', null, h('h3', null, `Theirs, version ${now.stat.version}`), h('pre', { class: 'data' }, binary ? base64(theirs) : text(theirs) ?? base64(theirs)))),
  ], 'Edit mine on');
  return form ? now.etag : null;
}

/** outcome says what became of a write that was not applied for certain. */
function outcome(e) {
  return e.outcome === 'unknown' ? `Unknown: the write may have been applied. Look before you repeat it. ${e.message}` : `Nothing was changed. ${e.message}`;
}

function reasonField() { return field('Reason', 'reason', { placeholder: 'goes to the log', maxlength: 200 }); }

async function create(app, tree, path) {
  const modes = ['persistent', 'sequential', 'container', 'ttl', 'sequentialTTL'];
  const form = await ask(`Create below ${path}`, [
    field('Name', 'name', { required: true, autofocus: true }),
    h('label', { class: 'field' }, h('span', null, 'Mode'), h('select', { name: 'mode' }, modes.map((m) => h('option', null, m)))),
    field('Time to live in seconds, of the last two', 'ttl', { type: 'number', min: 1 }),
    h('label', { class: 'field' }, h('span', null, 'Data'), h('textarea', { name: 'data', spellcheck: 'false' })), reasonField(),
  ], 'Create');
  if (!form) return;
  try {
    const made = await send('POST', 'v1/znode', {
      query: { path: child(path, form.get('name')), mode: form.get('mode'), ttl: form.get('mode').toLowerCase().includes('ttl') ? `${form.get('ttl') || 60}s` : '', reason: form.get('reason') },
      body: new TextEncoder().encode(form.get('data')), headers: { 'Content-Type': 'application/octet-stream' },
    });
    await tree.changed(path);
    app.say('Created.');
    app.go('tree', { path: made.path });
  } catch (e) {
    app.say(outcome(e), 'bad');
  }
}

async function remove(app, tree, path, z) {
  let usage = { descendants: 0 };
  if (z.stat.numChildren > 0) usage = await get('v1/usage', { path });
  const n = usage.descendants + 1, many = n > 10;
  const form = await ask(`Delete ${base(path)}`, [
    h('p', null, n > 1 ? `${plural(n, 'znode')} with ${bytes(usage.bytes)} of data go.` : 'The znode goes.'),
    many && field(`Type ${base(path)} to go on`, 'typed', { required: true, pattern: RegExp.escape?.(base(path)) ?? base(path).replace(/[.*+?^${}()|[\]\\/-]/g, '\\$&') }), reasonField(),
  ], 'Delete', 'danger');
  if (!form) return;
  try {
    await send('DELETE', 'v1/znode', { query: { path, reason: form.get('reason'), ...(n > 1 && { recursive: true, expect: n }) }, headers: { 'If-Match': z.etag } });
    await tree.changed(parent(path));
    app.say(n > 1 ? `${plural(n, 'znode')} deleted.` : 'Deleted.');
    app.go('tree', { path: parent(path) });
  } catch (e) {
    app.say(outcome(e), 'bad');
  }
}
