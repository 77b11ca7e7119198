// Elements without markup: what a znode holds reaches the page as text, never as HTML.

const svgNames = new Set(['svg', 'g', 'path', 'line', 'rect', 'circle', 'text', 'title', 'marker', 'defs']);

/**
 * h makes an element. Props: "class", "on" (an object of listeners), "data" (data attributes) and
 * any other attribute. true is an empty attribute; false, null and undefined are none.
 */
export function h(tag, props, ...children) {
  const el = svgNames.has(tag) ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (name === 'on') {
      for (const [event, fn] of Object.entries(value)) el.addEventListener(event, fn);
    } else if (name === 'data') {
      Object.assign(el.dataset, value);
    } else if (value === true) {
      el.setAttribute(name, '');
    } else if (value !== false && value !== null && value !== undefined) {
      el.setAttribute(name, value);
    }
  }
  return fill(el, children);
}

function fill(el, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) el.append(child);
  }
  return el;
}

/** put replaces what an element contains. */
export function put(el, ...children) {
  el.replaceChildren();
  return fill(el, children);
}

function named(el) { return `${el.localName} ${el.getAttribute('aria-label') || el.textContent}`; }

/**
 * renew replaces what an element contains, if that has changed. What has the focus, and how far
 * things are scrolled, stays.
 */
export function renew(el, ...children) {
  const next = fill(el.cloneNode(false), children);
  if (el.isEqualNode(next)) return;
  const inside = '[tabindex], a, button, summary', active = document.activeElement;
  const focused = el !== active && el.contains(active) ? named(active) : '';
  const scrolled = new Map();
  for (const e of el.querySelectorAll('[tabindex]')) if (e.scrollLeft || e.scrollTop) scrolled.set(named(e), [e.scrollLeft, e.scrollTop]);
  el.replaceChildren(...next.childNodes);
  if (!focused && !scrolled.size) return;
  for (const e of el.querySelectorAll(inside)) {
    if (scrolled.has(named(e))) [e.scrollLeft, e.scrollTop] = scrolled.get(named(e));
    if (focused && named(e) === focused && !el.contains(document.activeElement)) e.focus({ preventScroll: true });
  }
}

/** table makes a table with a caption and scoped heads. A column is {head, cell, class}. */
export function table(caption, columns, rows, none) {
  if (!rows.length) return h('p', { class: 'none' }, none);
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    h('table', null,
      h('caption', null, caption),
      h('thead', null, h('tr', null, columns.map((c) => h('th', { scope: 'col', class: c.class }, c.head)))),
      h('tbody', null, rows.map((row) => h('tr', null, columns.map((c, i) =>
        i === 0 ? h('th', { scope: 'row', class: c.class }, c.cell(row)) : h('td', { class: c.class }, c.cell(row))))))));
}

/** facts makes a list of names and values. It leaves out what is null. */
export function facts(...pairs) {
  return h('dl', { class: 'facts' }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== false && value !== '')
    .map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value))));
}

export function button(text, fn, props) {
  return h('button', { type: 'button', ...props, on: { click: fn } }, text);
}

/** badge is a word about something. kind: good, warn, bad, or nothing. */
export function badge(text, kind, title) {
  return h('span', { class: kind ? `badge ${kind}` : 'badge', title }, text);
}

/** ask shows a dialog and returns what fn returns for its form, or null if it was cancelled. */
export function ask(title, body, ok, kind) {
  return new Promise((resolve) => {
    const form = h('form', { method: 'dialog' },
      h('h2', { id: 'dialog-title' }, title), body,
      h('div', { class: 'actions' },
        button('Cancel', () => dialog.close('cancel')), // no submit button, so Enter in a field does not cancel
        h('button', { value: 'ok', class: kind || 'primary' }, ok)));
    const dialog = h('dialog', { 'aria-labelledby': 'dialog-title' }, form);
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'ok' ? new FormData(form) : null);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** field is a labelled input of a form. */
export function field(label, name, props) {
  return h('label', { class: 'field' }, h('span', null, label), h('input', { name, autocomplete: 'off', ...props }));
}
