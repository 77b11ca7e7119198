// Who holds what, who waits, and behind whom.

import { get, sendJSON } from './api.js';
import { ask, badge, button, field, h, renew } from './dom.js';
import { base, duration, plural, seconds, token } from './format.js';

export const title = 'Locks and elections';

const pause = 9000; // between two surveys
const most = 200; // queues that are drawn

export function open(app, query) {
  const root = h('input', { name: 'root', value: query.get('root') || '/', 'aria-label': 'Below this znode', size: 24, spellcheck: 'false' });
  let asked = 0, shown = '';
  const list = h('div', { class: 'card-stack' }), cycles = h('div', { class: 'card-stack' });
  return {
    element: h('div', { class: 'card-stack' },
      h('header', { class: 'title' }, h('h1', null, title), h('form', { class: 'row push', on: { submit: (e) => { e.preventDefault(); app.go('locks', { root: root.value }); } } },
        h('span', { class: 'quiet' }, 'below'), root, h('button', null, 'Show'))), cycles, list),
    navigate(q) { root.value = q.get('root') || '/'; return app.refresh(); },
    async refresh() {
      // A survey reads all znodes, so it is not asked for as often as the rest.
      if (Date.now() - asked < pause && root.value === shown) return;
      asked = Date.now();
      shown = root.value;
      const [a, graph] = await Promise.all([get('v1/locks', { root: root.value }), get('v1/locks/graph', { root: root.value })]);
      const stuck = new Set(graph.cycles.filter((c) => c.certain).flatMap((c) => c.links.map((l) => l.waits.path)));
      renew(cycles, graph.cycles.map((c) => cycle(c)));
      renew(list, a.queues.length ? a.queues.slice(0, most).map((q) => queue(app, q, stuck)) : h('p', { class: 'none' }, `Nobody holds or waits for anything below ${root.value}.`),
        (a.more || a.queues.length > most) && h('p', { class: 'quiet' }, 'There are more. Say below which znode.'));
    },
  };
}

function queue(app, q, stuck) {
  return h('section', { class: 'card', 'aria-label': q.path },
    h('header', null, h('h2', { class: 'path' }, h('a', { href: app.link('tree', { path: q.path }) }, q.path)), badge(q.kind),
      h('span', { class: 'quiet' }, `${plural(q.held, 'holder')}, ${q.waiting ? plural(q.waiting, 'waiter') : 'nobody waits'}`)),
    h('ol', { class: 'queue', tabindex: '0', 'aria-label': `${q.path}, from the holder to the last waiter` },
      q.holders.map((c) => contender(app, q, c, true, false)),
      q.waiters.slice(0, 50).map((c) => contender(app, q, c, false, stuck.has(c.path)))),
    q.waiting > 50 && h('p', { class: 'quiet' }, `${plural(q.waiting - 50, 'waiter')} more are not drawn.`));
}

function contender(app, q, c, holds, stuck) {
  return h('li', { class: holds ? 'holds' : stuck ? 'stuck' : '' },
    h('span', { class: 'row' }, h('strong', null, c.member ? `member ${c.member}` : 'lost'), holds ? badge('holds', 'good') : badge(stuck ? 'deadlock' : 'waits', stuck ? 'bad' : '')),
    c.note && h('span', null, c.note),
    h('span', { class: 'quiet' }, `for ${seconds(duration(c.age))}`),
    c.token && h('span', { class: 'quiet mono', title: `fencing token ${c.token}` }, `token ${token(c.token)}`),
    c.session && h('a', { class: 'mono', href: app.link('sessions', { id: c.session }) }, c.session),
    app.may('operator') && h('span', { class: 'row' },
      holds && q.kind !== 'election' && button('Revoke', () => act(app, 'revoke', c, { path: q.path }), { class: 'small', 'aria-label': `Revoke ${base(c.path)}` }), button('Evict', () => act(app, 'evict', c, { contender: c.path }), { class: 'small danger', 'aria-label': `Evict ${base(c.path)}` })));
}

const what = {
  revoke: { title: 'Ask for the lock', text: 'The holder is asked to give it up. Nothing forces it to.', ok: 'Revoke', done: 'The holder was asked.' },
  evict: { title: 'Take the lock away', text: 'The contender’s znode is deleted. A holder is told, but what it has under way may still arrive unless it uses its token.', ok: 'Evict', done: 'It is evicted.' },
};

async function act(app, name, c, whom) {
  const w = what[name];
  const form = await ask(w.title, [h('p', { class: 'path' }, c.path), h('p', null, w.text), field('Reason', 'reason', { required: true, placeholder: 'goes to the log' })], w.ok, name === 'evict' ? 'danger' : 'primary');
  if (!form) return;
  try {
    await sendJSON('POST', `v1/locks/${name}`, { ...whom, reason: form.get('reason') });
    app.say(w.done); // the next survey shows it
  } catch (e) {
    app.say(e.message, 'bad');
  }
}

function cycle(c) {
  return h('div', { class: 'notice bad' }, h('strong', null, c.certain ? 'Deadlock. ' : 'Perhaps a deadlock. '),
    h('ul', null, c.links.map((l) => h('li', null, h('span', { class: 'path' }, l.waits.path), ' waits for ', h('span', { class: 'path' }, l.behind.path),
      l.behind.note && ` (${l.behind.note})`))),
    c.length > c.links.length && `These are the first ${c.links.length} of ${c.length}. `,
    'It lasts until one of them gives up, or somebody evicts one.');
}
