// A lazy tree by WAI-ARIA's pattern: one tab stop, arrow keys, Home, End, Enter, and the first
// letters of a name. It loads the children of an open znode in pages.

import { h, put } from './dom.js';
import { base, child, number, parent } from './format.js';

const page = 500;

export class Tree {
  /** load(path, after, limit) returns {children, more}. open(path) is told what is selected. */
  constructor(load, open) {
    this.load = load;
    this.open = open;
    this.items = new Map(); // path → {li, group, names, more, count}
    this.typed = '';
    this.root = h('ul', { role: 'tree', 'aria-label': 'Znodes', on: {
      keydown: (e) => this.key(e), click: (e) => this.click(e), focusin: (e) => this.roving(e),
    } });
    this.element = h('div', { class: 'tree' }, this.root);
    this.root.append(this.item('/', '/', 1));
    this.items.get('/').li.tabIndex = 0;
  }

  item(path, name, level) {
    const count = h('span', { class: 'count' });
    const li = h('li', { role: 'treeitem', 'aria-label': name, tabindex: '-1', 'aria-level': level, 'aria-expanded': 'false', 'aria-selected': 'false', data: { path } },
      h('div', { class: 'item' }, h('span', { class: 'twist', 'aria-hidden': 'true' }, '›'),
        h('span', { class: 'name', title: name }, name), count));
    this.items.set(path, { li, level, group: null, names: [], more: false, count });
    return li;
  }

  /** expand opens a znode and loads its first children. */
  async expand(path) {
    const it = this.items.get(path);
    if (!it || it.li.getAttribute('aria-expanded') === 'true') return;
    it.li.setAttribute('aria-expanded', 'true');
    if (!it.group) {
      it.group = h('ul', { role: 'group' });
      it.li.append(it.group);
      await this.fetch(path);
    }
    if (it.group) it.group.hidden = false;
  }

  forgetChildren(it) {
    it.group?.remove();
    Object.assign(it, { group: null, names: [], more: false });
    it.li.setAttribute('aria-expanded', 'false');
  }

  collapse(path) {
    const it = this.items.get(path);
    it.li.setAttribute('aria-expanded', 'false');
    if (it.group) it.group.hidden = true;
    if (this.selected?.startsWith(path === '/' ? '/' : `${path}/`) && this.selected !== path) this.focus(path);
  }

  /** fetch appends the next page of children. */
  async fetch(path) {
    const it = this.items.get(path);
    it.li.setAttribute('aria-busy', 'true');
    try {
      const { children, more } = await this.load(path, it.names.at(-1), page);
      if (this.items.get(path) !== it) return;
      it.names.push(...children);
      this.draw(it, path, more);
    } catch (e) {
      put(it.count, e.status === 403 ? 'not allowed' : '!');
      it.count.title = e.message;
      if (!it.names.length) this.forgetChildren(it); // the next click asks again
    } finally {
      it.li.removeAttribute('aria-busy');
    }
  }

  /** draw shows the names that are known of an open znode. What is shown of them already stays. */
  draw(it, path, more) {
    const focused = it.group.contains(document.activeElement) && document.activeElement;
    const known = new Set(it.names);
    for (const li of [...it.group.children]) {
      if (li.dataset.more || !known.has(base(li.dataset.path))) this.forget(li);
    }
    let at = it.group.firstElementChild;
    for (const name of it.names) {
      if (at && at.dataset.path === child(path, name)) at = at.nextElementSibling;
      else it.group.insertBefore(this.item(child(path, name), name, it.level + 1), at);
    }
    if (more) {
      it.group.append(h('li', { role: 'treeitem', class: 'more', 'aria-label': `Show ${page} more`, tabindex: '-1', 'aria-level': it.level + 1, 'aria-selected': 'false', data: { more: path } },
        h('div', { class: 'item' }, h('span', { class: 'twist', 'aria-hidden': 'true' }, '…'), h('span', { class: 'name' }, `Show ${page} more`))));
    }
    put(it.count, it.names.length ? number(it.names.length) + (more ? '+' : '') : '');
    if (!it.names.length) {
      this.forgetChildren(it);
      it.li.removeAttribute('aria-expanded');
      put(it.li.querySelector('.twist'), '');
    }
    if (focused && !focused.isConnected) this.focus(path);
    if (!this.root.querySelector('[tabindex="0"]')) this.items.get('/').li.tabIndex = 0;
    this.select(this.selected);
  }

  /** forget takes an item away, with all below it. */
  forget(li) {
    for (const below of li.querySelectorAll('[data-path]')) this.items.delete(below.dataset.path);
    this.items.delete(li.dataset.path);
    li.remove();
  }

  /** reveal opens all that is above a path, and selects it. It returns whether the tree has it. */
  async reveal(path) {
    if (!path.startsWith('/')) return false;
    const above = [];
    for (let p = path; p !== '/';) above.unshift(p = parent(p));
    for (const p of above) await this.expand(p);
    const it = this.items.get(path);
    if (it) {
      this.select(path);
      it.li.querySelector('.item').scrollIntoView({ block: 'nearest' });
    }
    return Boolean(it);
  }

  select(path) {
    if (this.selected) this.items.get(this.selected)?.li.setAttribute('aria-selected', 'false');
    this.selected = path;
    this.items.get(path)?.li.setAttribute('aria-selected', 'true');
  }

  /** changed takes in that children of a znode came or went. It asks for as many as are shown. */
  async changed(path) {
    const it = this.items.get(path);
    if (!it || it.li.getAttribute('aria-busy')) return;
    if (!it.group) { // not open yet, or it had no children
      it.li.setAttribute('aria-expanded', 'false');
      put(it.li.querySelector('.twist'), '›');
      return;
    }
    const names = [];
    let more = true;
    while (more && names.length < Math.max(page, it.names.length)) {
      const a = await this.load(path, names.at(-1), page);
      names.push(...a.children);
      more = a.more;
    }
    if (this.items.get(path) !== it || !it.group) return;
    it.names = names;
    this.draw(it, path, more);
  }

  roving(e) {
    const li = e.target.closest('[role=treeitem]');
    if (!li) return;
    for (const other of this.root.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    li.tabIndex = 0;
  }

  focus(path) { this.items.get(path)?.li.focus(); }

  async act(li) {
    if (li.dataset.more) {
      const last = li.previousElementSibling;
      await this.fetch(li.dataset.more);
      (last?.nextElementSibling || last)?.focus();
      return;
    }
    this.select(li.dataset.path);
    this.open(li.dataset.path);
  }

  click(e) {
    const li = e.target.closest('[role=treeitem]');
    if (!li) return;
    const path = li.dataset.path;
    if (path && e.target.closest('.twist')) {
      li.getAttribute('aria-expanded') === 'true' ? this.collapse(path) : this.expand(path);
    } else {
      this.act(li);
      if (path) this.expand(path);
    }
    li.focus({ preventScroll: true });
  }

  /** visible returns the items that can be moved to. */
  visible() { return [...this.root.querySelectorAll('[role=treeitem]')].filter((li) => !li.parentElement.closest('ul[hidden]')); }

  key(e) {
    const li = e.target.closest('[role=treeitem]');
    if (!li || e.ctrlKey || e.metaKey || e.altKey) return;
    const path = li.dataset.path;
    const move = (by) => { const all = this.visible(); all[Math.min(Math.max(all.indexOf(li) + by, 0), all.length - 1)].focus(); };
    switch (e.key) {
      case 'ArrowDown': move(1); break;
      case 'ArrowUp': move(-1); break;
      case 'Home': this.visible()[0].focus(); break;
      case 'End': this.visible().at(-1).focus(); break;
      case 'ArrowRight':
        if (path && li.getAttribute('aria-expanded') === 'false') this.expand(path);
        else if (li.getAttribute('aria-expanded') === 'true') li.querySelector('[role=treeitem]')?.focus();
        break;
      case 'ArrowLeft':
        if (li.getAttribute('aria-expanded') === 'true') this.collapse(path);
        else li.parentElement.closest('[role=treeitem]')?.focus();
        break;
      case 'Enter': case ' ': this.act(li); break;
      default:
        if (e.key.length !== 1) return;
        this.type(e.key, li);
    }
    e.preventDefault();
  }

  /** type moves to the next item whose name begins with what was typed within a second. */
  type(letter, from) {
    const now = Date.now();
    this.typed = now - (this.typedAt || 0) < 1000 ? this.typed + letter.toLowerCase() : letter.toLowerCase();
    this.typedAt = now;
    const all = this.visible(), at = all.indexOf(from);
    const order = this.typed.length > 1 ? [...all.slice(at), ...all.slice(0, at)] : [...all.slice(at + 1), ...all.slice(0, at + 1)];
    order.find((li) => base(li.dataset.path || '').toLowerCase().startsWith(this.typed))?.focus();
  }
}
