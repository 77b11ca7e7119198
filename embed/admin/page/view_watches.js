// Who is told of what. Each member knows the watches of its own sessions, and nobody else does.

import { get } from './api.js';
import { h, renew, table } from './dom.js';
import { number, plural } from './format.js';

export const title = 'Watches';

const shownMax = 20; // sessions or paths in one cell

export function open(app) {
  const said = h('p'), paths = h('div'), sessions = h('div');
  const path = (p) => h('a', { href: app.link('tree', { path: p }) }, p);
  const session = (id) => h('a', { class: 'mono', href: app.link('sessions', { id }) }, id);
  return {
    element: h('div', { class: 'card-stack' }, h('h1', null, title),
      h('p', { class: 'quiet' }, 'Of this member only: the others know theirs.'), said, paths, sessions),
    async refresh() {
      const w = await get('v1/watches');
      renew(said, `Clients of this member\u2019s gateway watch ${plural(w.clientPaths, 'path')}. `,
        w.more && 'There are more watches than are shown.');
      renew(paths, table('By path', [
        { head: 'Path', class: 'path', cell: (x) => path(x.path) },
        { head: 'In this process', cell: (x) => kinds(x) },
        { head: 'Clients', cell: (x) => few(x.sessions, session) },
      ], byPath(w), 'Nobody watches anything.'));
      renew(sessions, w.clients.length > 0 && table('By session of a client', [
        { head: 'Session', class: 'mono', cell: (c) => session(c.session) },
        { head: 'Client', class: 'mono', cell: (c) => c.client },
        { head: 'Paths', class: 'path', cell: (c) => few(c.paths, path) },
      ], w.clients));
    },
  };
}

/** byPath puts together what sessions in the process and clients watch, in the order of the paths. */
function byPath(w) {
  const all = new Map(w.here.map((x) => [x.path, { ...x, sessions: [] }]));
  for (const c of w.clients) {
    for (const p of c.paths) {
      if (!all.has(p)) all.set(p, { path: p, sessions: [] });
      all.get(p).sessions.push(c.session);
    }
  }
  return [...all.values()].sort((a, b) => (a.path < b.path ? -1 : 1));
}

/** kinds says how many watches there are of each mode. */
function kinds(x) {
  return [x.once && `${number(x.once)} once`, x.persistent && `${number(x.persistent)} persistent`, x.recursive && `${number(x.recursive)} recursive`]
    .filter(Boolean).join(', ');
}

/** few lists the first ones, and says how many more there are. */
function few(list, cell) {
  const more = list.length - shownMax;
  return [list.slice(0, shownMax).map((x, i) => [i > 0 && ', ', cell(x)]), more > 0 && ` and ${number(more)} more`];
}
