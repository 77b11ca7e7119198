// Taking the state away, and putting a part of it back.

import { getBlob, send } from './api.js';
import { ask, button, field, h, put } from './dom.js';
import { bytes, number, plural } from './format.js';

export const title = 'Backup';

export function open(app) {
  const said = h('div', { role: 'status' }), preview = h('div', { role: 'status' });
  const exportPath = h('input', { name: 'export', value: '/', 'aria-label': 'Export this subtree', size: 24, spellcheck: 'false' });
  return {
    element: h('div', { class: 'card-stack' }, h('h1', null, title),
      h('section', { class: 'card' }, h('h2', null, 'Take'),
        h('p', null, 'A backup holds all znodes of all shards as of one moment. A new ensemble can begin with it: ', h('code', null, 'vivarium serve -seed'), '.'),
        h('div', { class: 'row' }, button('Take a backup', () => take(said, 'v1/backup', {}, 'vivarium.backup'), { class: 'primary' })),
        h('p', null, 'An export is text, a line for each znode. It can be imported here or elsewhere.'),
        h('div', { class: 'row' }, exportPath, button('Export', () => take(said, 'v1/export', { path: exportPath.value }, 'vivarium.jsonl'))), said),
      app.may('editor') ? h('section', { class: 'card' }, h('h2', null, 'Import'), importForm(preview), preview) : h('p', { class: 'quiet' }, 'Whoever may edit sees an import here.')),
  };
}

/** take downloads what needs the role "backup". Its token is asked for each time, and not kept. */
async function take(said, path, query, name) {
  const form = await ask('A token with the role “backup”', [
    h('p', null, 'It holds all data, whatever ACLs say. So it takes a token of its own, which is used once and not kept.'),
    field('Token', 'token', { type: 'password', required: true, autofocus: true }),
  ], 'Take');
  if (!form) return;
  put(said, h('p', { class: 'quiet' }, 'It is being made …'));
  try {
    const blob = await getBlob(path, query, form.get('token').trim());
    const link = h('a', { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    put(said, h('div', { class: 'notice good' }, `${name}: ${bytes(blob.size)}. `, path === 'v1/backup' && ['Check it with ', h('code', null, `vivarium verify ${name}`), '.']));
  } catch (e) {
    put(said, h('div', { class: 'notice bad' }, e.message));
  }
}

function importForm(preview) {
  const file = h('input', { type: 'file', name: 'file', 'aria-label': 'Backup or export' });
  const from = field('From this znode of the file', 'path', { value: '/', spellcheck: 'false' });
  const to = field('To this znode; empty: the same', 'as', { spellcheck: 'false' });
  const existing = h('select', { name: 'existing' }, ['fail', 'skip', 'overwrite'].map((w) => h('option', null, w)));
  const run = async (dryRun) => {
    if (!file.files.length) return put(preview, h('div', { class: 'notice warn' }, 'Choose a file first.'));
    const text = /\.(jsonl|json|txt)$/.test(file.files[0].name);
    try {
      const r = await send('POST', 'v1/import', {
        query: { path: from.querySelector('input').value, as: to.querySelector('input').value, existing: existing.value, dryRun },
        body: file.files[0], headers: { 'Content-Type': text ? 'application/x-ndjson' : 'application/octet-stream' },
      });
      put(preview, h('div', { class: 'notice good' }, dryRun ? 'This would happen: ' : 'Done: ',
        `${plural(r.created, 'znode')} created, ${number(r.overwritten)} overwritten, ${number(r.existed)} left as they are, ${plural(r.ephemerals, 'ephemeral')} left out.${r.noEnd ? ' The file has no end: some of it may be missing.' : ''}`));
    } catch (e) {
      put(preview, h('div', { class: 'notice bad' }, e.outcome === 'unknown' ? 'A part may have been imported. ' : 'Nothing was imported. ', e.message));
    }
  };
  return h('div', { class: 'card-stack' }, h('div', { class: 'row' }, file), h('div', { class: 'row' }, from, to,
    h('label', { class: 'field' }, h('span', null, 'What exists'), existing)),
  h('div', { class: 'row' }, button('Preview', () => run(true)), button('Import', () => run(false), { class: 'danger' })));
}
