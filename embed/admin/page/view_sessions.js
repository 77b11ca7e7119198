// Who is connected, by which member, and what goes if it ends.

import { get, sendJSON } from './api.js';
import { ask, badge, button, facts, field, h, renew, table } from './dom.js';
import { duration, number, plural, seconds } from './format.js';

export const title = 'Sessions';

export function open(app, query) {
  const list = h('div'), one = h('div');
  let id = query.get('id'), after = query.get('after');
  return {
    element: h('div', { class: 'card-stack' }, h('h1', null, title), one, list),
    navigate(q) { id = q.get('id'); after = q.get('after'); return this.refresh(); },
    async refresh() {
      renew(one, id && await get('v1/session', { id }).then((s) => card(app, s), (e) => h('div', { class: 'notice warn' }, e.status === 404 ? `Session ${id} has ended.` : e.message)));
      const a = await get('v1/sessions', { after });
      renew(list, table(`${plural(app.status?.sessions ?? a.sessions.length, 'session')}`, [
        { head: 'Session', class: 'mono', cell: (s) => h('a', { href: app.link('sessions', { id: s.id, after: after || '' }) }, s.id) },
        { head: 'Member', class: 'num', cell: (s) => s.member },
        { head: 'Kind', cell: (s) => badge(kind(s)) },
        { head: 'Timeout', class: 'num', cell: (s) => seconds(duration(s.timeout)) },
        { head: 'Identities', class: 'path', cell: (s) => (s.identities || []).join(', ') },
        { head: 'Ephemerals', class: 'num', cell: (s) => number(s.ephemerals) },
      ], a.sessions, 'Nobody has a session.'),
      a.more && h('p', null, h('a', { href: app.link('sessions', { after: a.sessions.at(-1).id }) }, 'More')));
    },
  };
}

function card(app, s) {
  return h('section', { class: 'card', 'aria-label': `Session ${s.id}` },
    h('header', null, h('h2', { class: 'mono' }, s.id), badge(kind(s)), app.may('operator') && button('End it', () => end(app, s), { class: 'small danger' })),
    facts(['Member', s.member], ['Timeout', seconds(duration(s.timeout))], ['Identities', (s.identities || []).join(', ')],
      ['Ephemerals', plural(s.ephemerals, 'znode')]),
    (s.paths || []).length > 0 && h('ul', null, s.paths.map((p) => h('li', { class: 'path' }, h('a', { href: app.link('tree', { path: p }) }, p)))));
}

/** kind says who speaks for a session: the node it was opened on, or a client of a gateway. */
function kind(s) { return s.remote ? 'client' : 'in process'; }

async function end(app, s) {
  const form = await ask(`End session ${s.id}`, [h('p', null, 'Its ephemerals go, and with them its locks and leaderships.'), field('Reason', 'reason', { required: true, placeholder: 'goes to the log' })], 'End it', 'danger');
  if (!form) return;
  try {
    await sendJSON('POST', 'v1/sessions/end', { session: s.id, reason: form.get('reason') });
    app.say('It has ended.');
    app.refresh();
  } catch (e) {
    app.say(e.message, 'bad');
  }
}
