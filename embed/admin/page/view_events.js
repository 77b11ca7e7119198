// What happened to this member, and what changes in the tree while one looks.

import { get, lines } from './api.js';
import { button, h, put, renew } from './dom.js';
import { clock, duration, plural, seconds } from './format.js';

export const title = 'Events';

/** told says in words what an occurrence has besides its kind. */
function told(o) {
  const count = { 'leader changed': (n) => `term ${n}`, 'level raised': (n) => `level ${n}` }[o.kind] || ((n) => plural(n, 'session'));
  return [o.shard && `shard ${o.shard}`, o.member ? `member ${o.member}` : o.kind === 'leader changed' && 'nobody leads', o.number && count(o.number), o.took && `took ${seconds(duration(o.took))}`].filter(Boolean).join(' · ');
}

const most = 500; // changes that are kept

export function open(app, query) {
  const recent = h('ol', { class: 'log', tabindex: '0', 'aria-label': 'What happened to this member' });
  const changes = h('ol', { class: 'log', tabindex: '0', 'aria-label': 'Changes' });
  const path = h('input', { name: 'path', value: query.get('path') || '/', 'aria-label': 'At and below this znode', size: 24, spellcheck: 'false' });
  const state = h('p', { class: 'quiet' }, 'Not following.'), toggle = button('Follow', () => (follower ? stop() : follow()));
  let follower = null, seen = 0;
  let waiting = [];

  async function follow() {
    follower = new AbortController();
    const mine = follower;
    put(toggle, 'Stop');
    seen = 0;
    put(changes);
    put(state, `Following ${path.value}.`);
    try {
      await lines('v1/follow', { path: path.value }, (event) => { if (mine === follower && !event.follows) note(event); }, mine.signal);
      if (mine === follower) put(state, `The stream has ended after ${plural(seen, 'change')}.`);
    } catch (e) {
      if (e.name !== 'AbortError') put(state, `The stream has ended: ${e.message}`);
    }
    if (mine === follower) stop();
  }

  function stop() {
    follower?.abort();
    follower = null;
    put(toggle, 'Follow');
  }

  /** note collects changes, so that a storm costs one drawing each frame. */
  function note(event) {
    seen++;
    waiting.push(event);
    if (waiting.length > most) waiting.shift();
    if (waiting.length === 1) requestAnimationFrame(draw);
  }

  function draw() {
    changes.prepend(...waiting.reverse().map((e) => h('li', null,
      h('time', null, clock(Date.now())), h('span', null, e.end ? 'ended' : e.type), e.path ? h('a', { class: 'path', href: app.link('tree', { path: e.path }) }, e.path) : h('span', null, e.end || ''))));
    waiting = [];
    while (changes.childElementCount > most) changes.lastElementChild.remove();
    put(state, `Following ${path.value}: ${plural(seen, 'change')}.`);
  }

  return {
    element: h('div', { class: 'card-stack' }, h('h1', null, title),
      h('h2', null, 'Changes of the tree'), h('form', { class: 'row', on: { submit: (e) => { e.preventDefault(); stop(); follow(); } } }, 'At and below', path, toggle), state, changes,
      h('h2', null, 'What happened to this member'), recent),
    async refresh() {
      const a = await get('v1/recent');
      renew(recent, [...a.recent].reverse().map((o) => h('li', null, h('time', { datetime: o.at }, clock(o.at)), h('strong', null, o.kind), h('span', { class: 'quiet' }, told(o)))),
        !a.recent.length && h('li', null, 'Nothing has happened.'));
    },
    close: stop,
  };
}
