// What the page asks the member. Every path is relative, so that the handler may be mounted anywhere.

const key = 'vivarium.token';

/** Failed is an answer that is no success. outcome is set for writes: refused or unknown. as is the token that was sent. */
export class Failed extends Error {
  constructor(status, message, outcome) {
    super(message);
    this.status = status;
    this.outcome = outcome;
  }
}

export function token() { return sessionStorage.getItem(key) || ''; }

export function setToken(t) { t ? sessionStorage.setItem(key, t) : sessionStorage.removeItem(key); }

function address(path, query) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query || {})) {
    if (value !== undefined && value !== null && value !== '' && value !== false) q.set(name, value === true ? '1' : value);
  }
  const s = q.toString();
  return s ? `${path}?${s}` : path;
}

async function call(method, path, { query, body, headers, signal, as = token() } = {}) {
  const h = new Headers(headers);
  if (as) h.set('Authorization', `Bearer ${as}`);
  let answer;
  try {
    answer = await fetch(address(path, query), { method, body, headers: h, signal, cache: 'no-store', credentials: 'omit', redirect: 'error' });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new Failed(0, method === 'GET' ? 'This member does not answer.' : 'This member did not answer: the write may or may not have been applied.', method === 'GET' ? undefined : 'unknown');
  }
  if (answer.status === 401 && as && as === token()) setToken(''); // another one may have come meanwhile
  if (!answer.ok) throw Object.assign(new Failed(answer.status, await reason(answer), answer.headers.get('Vivarium-Outcome') || undefined), { as });
  return answer;
}

async function reason(answer) {
  const text = await answer.text();
  try {
    const told = JSON.parse(text);
    if (typeof told.error === 'string') return told.error;
  } catch { /* it is text */ }
  return text.trim() || `${answer.status} ${answer.statusText}`;
}

export async function get(path, query, signal) {
  return (await call('GET', path, { query, signal })).json();
}

/** getTagged returns the JSON of an answer and its ETag. */
export async function getTagged(path, query, signal) {
  const answer = await call('GET', path, { query, signal });
  return { ...await answer.json(), etag: answer.headers.get('ETag') };
}

/** getBytes returns the octets and the headers of an answer. */
export async function getBytes(path, query, signal) {
  const answer = await call('GET', path, { query, signal, headers: { Accept: 'application/octet-stream' } });
  return { bytes: new Uint8Array(await answer.arrayBuffer()), headers: answer.headers };
}

/** getBlob asks with a token of its own. */
export async function getBlob(path, query, as) {
  return (await call('GET', path, { query, as })).blob();
}

/** send writes. It returns the JSON of the answer, or null if there is none. */
export async function send(method, path, options) {
  const answer = await call(method, path, options);
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}

export function sendJSON(method, path, value, query) {
  return send(method, path, { query, body: JSON.stringify(value), headers: { 'Content-Type': 'application/json' } });
}

/**
 * lines reads a stream of JSON lines. fn is told each; the promise ends with the stream. A line that
 * is too long to be one of ours ends it.
 */
export async function lines(path, query, fn, signal) {
  const answer = await call('GET', path, { query, signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    if (rest.length > 8 << 20) throw new Failed(0, 'The stream is not one of lines.');
    const whole = rest.split('\n');
    rest = whole.pop();
    for (const line of whole) if (line) fn(JSON.parse(line));
  }
}
