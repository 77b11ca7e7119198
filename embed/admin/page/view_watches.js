// Who is told of what. Each member knows the watches of its own sessions, and nobody else does.

import { get } from './api.js';
import { h, renew } from './dom.js';
import { plural } from './format.js';

export const title = 'Watches';

export function open() {
  const all = h('div');
  return {
    element: h('div', { class: 'card-stack' }, h('h1', null, title),
      h('p', { class: 'quiet' }, 'Of this member only: the others know theirs.'), all),
    async refresh() {
      const w = await get('v1/watches');
      renew(all, h('p', null, `Clients of this member\u2019s gateway watch ${plural(w.clientPaths, 'path')}.`));
    },
  };
}
