// How values are shown.

const day = 86400;

/** ago says how long ago a time was, in its two largest units. */
export function ago(time, now = Date.now()) {
  const at = typeof time === 'number' ? time : Date.parse(time);
  if (!Number.isFinite(at) || at <= 0) return '';
  return seconds((now - at) / 1000);
}

/** seconds shows a length of time. */
export function seconds(s) {
  if (!Number.isFinite(s)) return '';
  s = Math.max(0, s);
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 2 * day) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  return `${Math.floor(s / day)} d ${Math.floor(s % day / 3600)} h`;
}

/** duration reads a length of time as Go writes it, such as "1h2m3.5s", and returns its seconds. */
export function duration(text) {
  const unit = { ns: 1e-9, 'µs': 1e-6, us: 1e-6, ms: 1e-3, s: 1, m: 60, h: 3600 };
  let sum = 0;
  for (const [, n, u] of String(text).matchAll(/([\d.]+)(ns|µs|us|ms|s|m|h)/g)) sum += Number(n) * unit[u];
  return sum;
}

/** token shows a fencing token without the zeros that make it sort as text. */
export function token(text) { return text.split('-').map((n) => n.replace(/^0+(?=.)/, '')).join('-').replace(/-0$/, ''); }

/** clock shows a time of day, with the date unless it is today. */
export function clock(time) {
  const t = new Date(time);
  if (Number.isNaN(t.getTime()) || t.getTime() <= 0) return '';
  const pad = (n, w = 2) => String(n).padStart(w, '0');
  const hours = `${pad(t.getHours())}:${pad(t.getMinutes())}:${pad(t.getSeconds())}.${pad(t.getMilliseconds(), 3)}`;
  return t.toDateString() === new Date().toDateString() ? hours : `${t.getFullYear()}-${pad(t.getMonth() + 1)}-${pad(t.getDate())} ${hours}`;
}

export function number(n) { return Number(n).toLocaleString('en').replaceAll(',', '\u202f'); }

/** bytes shows a size in binary units. */
export function bytes(n) {
  if (!Number.isFinite(n)) return '';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

export function plural(n, one, many = `${one}s`) { return `${number(n)} ${n === 1 ? one : many}`; }

/** text decodes octets as UTF-8, or returns null if they are none that can be shown. */
export function text(octets) {
  try {
    const s = new TextDecoder('utf-8', { fatal: true }).decode(octets);
    // eslint-disable-next-line no-control-regex
    return /[\u0000-\u0008\u000b\u000c\u000e-\u001f]/.test(s) ? null : s;
  } catch {
    return null;
  }
}

/** hex shows octets as hexdump -C does. At most limit of them. */
export function hex(octets, limit = 64 << 10) {
  const out = [];
  for (let at = 0; at < Math.min(octets.length, limit); at += 16) {
    const row = octets.subarray(at, Math.min(at + 16, limit));
    const digits = Array.from(row, (b) => b.toString(16).padStart(2, '0'));
    const left = digits.slice(0, 8).join(' ').padEnd(23), right = digits.slice(8).join(' ').padEnd(23);
    const chars = Array.from(row, (b) => (b >= 0x20 && b < 0x7f ? String.fromCharCode(b) : '.')).join('');
    out.push(`${at.toString(16).padStart(8, '0')}  ${left}  ${right}  |${chars}|`);
  }
  if (octets.length > limit) out.push(`… ${number(octets.length - limit)} more`);
  return out.join('\n');
}

/** base64 encodes octets. */
export function base64(octets) {
  let s = '';
  for (let at = 0; at < octets.length; at += 0x8000) s += String.fromCharCode(...octets.subarray(at, at + 0x8000));
  return btoa(s);
}

/** fromBase64 decodes base64. It throws if it is none. */
export function fromBase64(s) { return Uint8Array.from(atob(s.replaceAll(/\s/g, '')), (c) => c.charCodeAt(0)); }

/** gunzip opens gzip data, at most limit octets of it. */
export async function gunzip(octets, limit = 4 << 20) {
  const reader = new Blob([octets]).stream().pipeThrough(new DecompressionStream('gzip')).getReader();
  const parts = [];
  let n = 0;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    parts.push(value);
    n += value.length;
    if (n > limit) {
      await reader.cancel();
      break;
    }
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/** parent returns the path above a path. */
export function parent(path) { return path.slice(0, Math.max(1, path.lastIndexOf('/'))); }

export function child(path, name) { return path === '/' ? `/${name}` : `${path}/${name}`; }

export function base(path) { return path.slice(path.lastIndexOf('/') + 1); }
