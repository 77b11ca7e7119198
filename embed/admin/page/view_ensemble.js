// Who takes part, who leads, and what is wrong.

import { get, sendJSON } from './api.js';
import { ask, badge, button, facts, field, h, renew, table } from './dom.js';
import { ago, bytes, number, plural } from './format.js';

export const title = 'Ensemble';

export function open(app) {
  const verdict = h('div'), counts = h('p', { class: 'quiet' }), members = h('section', { class: 'cards', 'aria-label': 'Members' });
  const shards = h('div'), mesh = h('section', { class: 'card', 'aria-label': 'Connections' });
  const element = h('div', { class: 'card-stack' }, h('h1', { class: 'visually-hidden' }, title), verdict, counts, members, h('div', { class: 'pair' }, mesh, shards));
  return {
    element,
    async refresh() {
      const s = app.status, { members: list, leads } = await get('v1/members');
      renew(verdict, judge(s, list, leads));
      renew(counts, [plural(s.znodes, 'znode'), s.sessions !== undefined && plural(s.sessions, 'session'), s.ephemerals !== undefined && plural(s.ephemerals, 'ephemeral'), `feature level ${s.level}`].filter(Boolean).join(' · '));
      renew(members, list.map((m) => member(app, s, m, leads)));
      renew(mesh, h('h2', null, 'Connections of this member'), picture(s, list));
      renew(shards, shardTable(app, s, list));
    },
  };
}

/** judge says what is wrong, in one sentence each. It asks what the alerts ask. */
function judge(s, list, leads) {
  const wrong = [], worth = [];
  if (s.over) wrong.push(`This member is over: ${s.over}.`);
  else if (!s.ready) wrong.push(`This member does not serve: ${s.joining || s.waiting}.`);
  for (const shard of s.shards) if (!shard.leader) wrong.push(`Shard ${shard.shard} has no leader that this member knows.`);
  if (s.slow) worth.push(`${s.slow[0].toUpperCase()}${s.slow.slice(1)}.`);
  const voters = list.filter((m) => m.role === 'voter' && !m.leaving);
  if (voters.length === 1 && list.length > 1) worth.push('One member votes alone. If it fails, writes stop.');
  if (voters.length === 2) worth.push('Two members vote. If either fails, writes stop.');
  if (leads) {
    const away = voters.filter((m) => !m.answers);
    if (away.length) worth.push(`${away.map((m) => `Member ${m.id}`).join(', ')} ${away.length === 1 ? 'does' : 'do'} not answer, and ${margin(voters.length, voters.length - away.length)}`);
    for (const m of list) if (m.answers && m.behind > 1000) worth.push(`Member ${m.id} is ${number(m.behind)} entries behind.`);
  } else if (s.ready && s.missing.length) { // it knows only its own connections
    worth.push(`This member has no connection to ${s.missing.map((m) => `member ${m}`).join(', ')}, and needs one.`);
  }
  for (const m of list) if (m.leaving) worth.push(`Member ${m.id} is to go: ${m.leaving}.`);
  if (s.heldDown?.length) worth.push(`Level ${s.level}: ${s.heldDown.map((m) => `member ${m}`).join(', ')} ${s.heldDown.length === 1 ? 'keeps' : 'keep'} the ensemble from the next one.`);
  const all = [...wrong, ...worth];
  if (!all.length && !leads) {
    return h('div', { class: 'notice good' }, h('strong', null, 'All is well here. '), `Whether all members answer is known to member ${s.shards[0].leader}, which leads.`);
  }
  if (!all.length) {
    return h('div', { class: 'notice good' }, h('strong', null, 'All is well. '),
      `${voters.length === list.length ? '' : `${number(voters.length)} of `}${plural(list.length, 'member')} ${voters.length === 1 ? 'votes' : 'vote'}, and ${margin(voters.length, voters.length)}`);
  }
  return h('div', { class: `notice ${wrong.length ? 'bad' : 'warn'}` }, h('strong', null, wrong.length ? 'Something is wrong.' : 'Worth a look.'),
    h('ul', null, all.map((t) => h('li', null, t))));
}

function margin(voters, answering) {
  const more = answering - (Math.floor(voters / 2) + 1);
  if (more < 0) return 'the others are no quorum.';
  return `${more === 0 ? 'none' : number(more)} ${answering < voters ? 'more ' : ''}may fail.`;
}

function member(app, s, m, leadsHome) {
  const self = m.id === s.member, leads = s.shards.filter((x) => x.leader === m.id);
  const missing = s.missing.includes(m.id);
  return h('article', { class: ['card', 'member', self && 'self', missing && 'away'].filter(Boolean).join(' '), 'aria-label': `Member ${m.id}` },
    h('header', null, h('h2', null, `Member ${m.id}`), m.name && h('span', { class: 'quiet' }, m.name),
      badge(m.role, m.role === 'voter' ? 'good' : ''), leads.length > 0 && badge(s.shards.length === 1 ? 'leads' : `leads ${plural(leads.length, 'shard')}`, 'good'),
      self && badge('this one'), missing && badge('not connected', 'bad'), m.leaving && badge('to go', 'warn')),
    facts(['Address', m.address && h('span', { class: 'path' }, m.address)], ['Clients', m.client && h('span', { class: 'path' }, m.client)], ['Zone', m.zone],
      ['Since', m.since && ago(m.since)],
      ['Version', self && s.version], ['Disk', self && s.disk && disk(s.disk)],
      ['Behind', leadsHome && !self ? (m.answers ? lag(m.behind) : 'does not answer') : null]),
    app.may('operator') && s.ready && !missing && m.role === 'voter' && leads.length < s.shards.length &&
      h('div', null, button(`Let member ${m.id} lead`, () => lead(app, s, m), { class: 'small' })));
}

function disk(d) { return `${bytes(d.log + d.image)} used, ${bytes(d.free)} of ${bytes(d.size)} free`; }

function lag(behind) {
  const bar = h('div', { class: behind > 1000 ? 'bar warn' : 'bar', 'aria-hidden': 'true' }, h('i'));
  bar.firstChild.style.width = `${Math.min(100, behind / 100)}%`;
  return [plural(behind, 'entry', 'entries'), bar];
}

async function lead(app, s, m) {
  const shards = s.shards.filter((x) => x.leader !== m.id).map((x) => x.shard);
  const form = await ask(`Let member ${m.id} lead`, [
    h('p', null, shards.length === 1 ? `Shard ${shards[0]}: writes wait for the transfer, which takes a few milliseconds.` : 'Which shard?'),
    shards.length > 1 && h('label', { class: 'field' }, h('span', null, 'Shard'), h('select', { name: 'shard' }, shards.map((x) => h('option', null, x)))),
    field('Reason', 'reason', { required: true, placeholder: 'goes to the log' }),
  ], 'Transfer');
  if (!form) return;
  try {
    await sendJSON('POST', 'v1/leadership', { shard: Number(form.get('shard')) || shards[0], to: m.id, reason: form.get('reason') });
    app.say(`Member ${m.id} was asked to lead.`);
  } catch (e) {
    app.say(e.message, 'bad');
  }
}

function shardTable(app, s, list) {
  const name = (id) => (id ? h('a', { href: '#ensemble' }, `member ${id}`) : badge('nobody', 'bad'));
  return table('Shards', [
    { head: 'Shard', cell: (x) => x.shard },
    { head: 'Leader', cell: (x) => name(x.leader) },
    { head: 'Term', class: 'num', cell: (x) => number(x.term) },
    { head: 'Newest zxid', class: 'num mono', cell: (x) => x.zxid },
    { head: 'Applied up to entry', class: 'num', cell: (x) => number(x.applied) },
    { head: 'Memory', class: 'num', cell: (x) => bytes(x.treeSize) },
  ], s.shards, 'This member has yet to join.');
}

/** picture draws this member in the middle of those that it knows. */
function picture(s, list) {
  const others = list.filter((m) => m.id !== s.member), shown = others.slice(0, 12);
  if (!others.length) return h('p', { class: 'none' }, 'It is alone.');
  // One or two are drawn beside it, more around it.
  const flat = shown.length < 3, middle = flat ? 30 : 140;
  const at = (i) => { const a = 2 * Math.PI * i / shown.length - (flat ? 0 : Math.PI / 2); return [170 + 115 * Math.cos(a), middle + (flat ? 0 : 100 * Math.sin(a))]; };
  const leads = (id) => s.shards.some((x) => x.leader === id);
  const dot = (id, x, y, up) => h('g', null,
    h('circle', { cx: x, cy: y, r: 20, class: [leads(id) && 'leads', !up && 'away'].filter(Boolean).join(' ') }),
    h('text', { x, y: y + 5, class: leads(id) ? 'on' : '' }, String(id)));
  const words = `Member ${s.member} is connected to ${s.connected.length ? s.connected.join(', ') : 'nobody'}` +
    (s.missing.length ? `, and not to ${s.missing.join(', ')}` : '');
  return [h('svg', { class: 'mesh', viewBox: `0 0 340 ${2 * middle}`, role: 'img', 'aria-label': words },
    shown.map((m, i) => { const [x, y] = at(i); return h('line', { x1: 170, y1: middle, x2: x, y2: y, class: s.connected.includes(m.id) ? 'up' : s.missing.includes(m.id) ? 'down' : '' }); }),
    shown.map((m, i) => dot(m.id, ...at(i), !s.missing.includes(m.id))), dot(s.member, 170, middle, true)),
  h('p', { class: 'quiet' }, `${words}. `, shown.length < others.length && `${others.length - shown.length} more are not drawn.`)];
}
