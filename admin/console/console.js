'use strict';

// Everything shown comes from the JSON API and is put in as text, never as markup.
const $ = (id) => document.getElementById(id);
const interval = 2000;
let last = null; // previous answers, for rates
let sort = { key: 'name', down: false };
let open = ''; // topic whose partitions are shown
let topics = [];
const busy = new Set(); // topics with a roll or evict under way

function el(tag, text, cls) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
}

function bytes(n) {
  if (n < 0) return '–';
  if (!n) return '0';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (n >= 100 || i === 0 ? n.toFixed(0) : n.toFixed(1)) + ' ' + units[i];
}

const count = (n) => n < 0 ? '–' : Number(n).toLocaleString('en');

function duration(ms) {
  if (!ms || ms < 0) return '–';
  const s = ms / 1000;
  if (s < 90) return s.toFixed(s < 10 ? 1 : 0) + ' s';
  if (s < 5400) return (s / 60).toFixed(0) + ' min';
  if (s < 172800) return (s / 3600).toFixed(1) + ' h';
  return (s / 86400).toFixed(0) + ' d';
}

function rate(now, before, seconds) {
  if (before === undefined || !seconds) return '–';
  const r = (now - before) / seconds;
  return r < 0 ? '–' : r < 10 ? r.toFixed(1) : count(Math.round(r));
}

function fill(table, rows) {
  const body = $(table).tBodies[0];
  body.replaceChildren(...rows.map((cells) => {
    const tr = document.createElement('tr');
    for (const c of cells) {
      if (c instanceof Node) { const td = el('td'); td.append(c); tr.append(td); }
      else if (Array.isArray(c)) tr.append(el('td', c[0], c[1]));
      else tr.append(el('td', c));
    }
    return tr;
  }));
}

function bar(hot, cold) {
  const ns = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(ns, 'svg');
  svg.setAttribute('viewBox', '0 0 100 8');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', bytes(hot) + ' hot, ' + bytes(cold) + ' cold');
  const total = hot + cold;
  const w = total ? 100 * hot / total : 0;
  const rect = (x, width, cls) => {
    const r = document.createElementNS(ns, 'rect');
    r.setAttribute('x', x); r.setAttribute('width', width); r.setAttribute('height', 8); r.setAttribute('class', cls);
    svg.append(r);
  };
  if (!total) rect(0, 100, 'none');
  else { rect(0, w, 'hot'); rect(w, 100 - w, 'cold'); }
  return svg;
}

async function get(path) {
  const r = await fetch(path, { headers: { Accept: 'application/json' } });
  if (!r.ok && r.status !== 503) throw new Error((await r.json()).error || r.statusText);
  return r.json();
}

async function act(topic, what, button) {
  busy.add(topic);
  button.disabled = true;
  try {
    const r = await fetch('/api/v1/topics/' + encodeURIComponent(topic) + '/' + what,
      { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{}' });
    const answer = await r.json();
    if (!r.ok) throw new Error(answer.error);
    if (answer.failed) throw new Error(answer.partitions.find((p) => p.error).error);
  } catch (e) {
    note(what + ' of ' + topic + ': ' + e.message);
  } finally {
    busy.delete(topic);
    refresh();
  }
}

let notes = [];
function note(text) { notes = [text, ...notes].slice(0, 3); }

function action(topic, what, title) {
  const b = el('button', what);
  b.type = 'button';
  b.title = title;
  b.disabled = busy.has(topic);
  b.addEventListener('click', () => act(topic, what, b));
  return b;
}

function showTopics(before, seconds) {
  const filter = $('filter').value.toLowerCase();
  const old = new Map((before || []).map((t) => [t.id, t]));
  const value = (t) => sort.key === 'rate' ? t.offsets - (old.get(t.id) || t).offsets : t[sort.key];
  const list = topics.filter((t) => t.name.toLowerCase().includes(filter)).sort((a, b) => {
    const x = value(a), y = value(b);
    return (x < y ? -1 : x > y ? 1 : 0) * (sort.down ? -1 : 1);
  });
  fill('topics', list.slice(0, 1000).map((t) => {
    const name = el('button', t.name, 'link');
    name.type = 'button';
    name.addEventListener('click', () => { open = t.name; refresh(); });
    const buttons = el('span');
    buttons.append(action(t.name, 'roll', 'bring everything into the bucket now'), ' ',
      action(t.name, 'evict', 'drop local copies that the bucket covers'));
    const o = old.get(t.id);
    return [name, [t.partitions, 'n'], t.durability + (t.deleting ? ', deleting' : ''), [count(t.offsets), 'n'],
      [rate(t.offsets, o && o.offsets, seconds), 'n'], [bytes(t.local_bytes), 'n'], [bytes(t.archive_bytes), 'n'],
      bar(t.local_bytes, t.archive_bytes), [bytes(t.pending_bytes), 'n'], [duration(t.roll_lag_ms), 'n'], buttons];
  }));
}

function card(value, label) {
  const c = el('div', undefined, 'card');
  c.append(el('b', value), el('span', label));
  return c;
}

function showCluster(c, before, seconds) {
  $('identity').title = c.bucket;
  $('identity').textContent = 'node ' + c.broker_id + ' of cluster ' + c.cluster_id + ' · ' + c.version + ' · ' + c.bucket;
  const h = $('health');
  const bad = c.health.problems.length;
  h.textContent = !c.health.ready ? 'not ready' : bad ? 'ready, ' + bad + ' problem' + (bad > 1 ? 's' : '') : 'ready';
  h.className = 'badge ' + (!c.health.ready ? 'bad' : bad ? 'warn' : 'good');
  const lines = c.health.problems.map((p) => el('p', p.component + ': ' + p.message, p.unready ? 'bad' : 'warn'))
    .concat(notes.map((n) => el('p', n, 'warn')));
  $('problems').hidden = !lines.length;
  $('problems').replaceChildren(...lines);
  const states = Object.entries(c.partitions).map(([s, n]) => n + ' ' + s).join(', ') || 'none';
  const hits = c.cache.hits + c.cache.misses;
  $('cards').replaceChildren(
    card(c.topics, 'topics'), card(states, 'partitions here'), card(bytes(c.local_bytes), 'hot, in the commit log'),
    card(bytes(c.archive_bytes), 'cold, in the bucket'), card(count(c.connections), 'connections'),
    card(hits ? (100 * c.cache.hits / hits).toFixed(0) + ' %' : '–', 'cache hits, ' + bytes(c.cache.bytes) + ' held'),
    card(bytes(c.disk.used_bytes), 'disk used, ' + bytes(c.disk.free_bytes) + ' free'),
    card(duration(c.now - c.started_at), 'since start'));
  const key = (b) => b.class + ' ' + b.kind + ' ' + b.verb;
  const calls = new Map((before ? before.bucket_calls : []).map((b) => [key(b), b]));
  fill('bucket', c.bucket_calls.map((b) => [b.class, b.kind, b.verb, [count(b.requests), 'n'],
    [rate(b.requests, (calls.get(key(b)) || {}).requests, seconds), 'n'], [count(b.errors), b.errors ? 'n warn' : 'n'], [bytes(b.bytes), 'n']]));
  const apis = new Map((before ? before.requests : []).map((r) => [r.api, r]));
  fill('requests', c.requests.map((r) => [r.api, [count(r.requests), 'n'], [rate(r.requests, (apis.get(r.api) || {}).requests, seconds), 'n'],
    [count(r.errors), r.errors ? 'n warn' : 'n'], [bytes(r.bytes_in), 'n'], [bytes(r.bytes_out), 'n']]));
}

function showStatus(s) {
  const words = { ok: 'all is well', info: 'all is well', warning: 'needs attention', critical: 'something is wrong' };
  const look = { ok: 'good', info: 'good', warning: 'warn', critical: 'bad' };
  const several = (n, what) => n + ' ' + what + (n === 1 ? '' : 's');
  $('verdict').textContent = words[s.level] || s.level;
  $('verdict').className = 'badge ' + (look[s.level] || 'warn');
  const moves = s.moves.under_way + s.moves.waiting;
  $('summary').textContent = (s.controller_id < 0 ? 'no controller leads' : 'controller ' + s.controller_id) + ' · ' +
    s.brokers.filter((b) => b.answers).length + ' of ' + several(s.brokers.length, 'broker') + ' alive · ' +
    s.partitions.served + ' of ' + several(s.partitions.total, 'partition') + ' served · ' + (moves ? several(moves, 'move') : 'no moves');
  $('cluster-problems').replaceChildren(...s.problems.map((p) => {
    const e = el('p', p.message, look[p.severity] === 'good' ? '' : look[p.severity]);
    if (p.action) e.append(el('small', p.action));
    return e;
  }));
  fill('brokers', s.brokers.map((b) => [[b.id, 'n'], [b.status, b.answers ? '' : 'bad'], b.host ? b.host + ':' + b.port : '–', b.rack || '–', [count(b.partitions), 'n'],
    [count(b.serving), 'n'], [count(b.only_here), 'n'], [b.moves_in, 'n'], [b.moves_out, 'n'], [b.alive ? duration(s.now - b.started_at) : '–', 'n'], b.version || '–']));
}

// The status asks every node, which may take seconds when one is silent: it is not waited for.
let asking = false;
async function refreshStatus() {
  if (asking) return;
  asking = true;
  try {
    showStatus(await get('/api/v1/cluster/status'));
  } catch (e) {
    $('verdict').textContent = 'unknown';
    $('verdict').className = 'badge warn';
  } finally {
    asking = false;
  }
}

async function showDetail() {
  $('detail').hidden = !open;
  if (!open) return;
  const t = await get('/api/v1/topics/' + encodeURIComponent(open));
  $('detail-name').textContent = t.name;
  const settings = Object.entries(t.overrides || {}).map(([k, v]) => k + ' = ' + v).join(', ');
  $('detail-config').textContent = settings || 'all settings at their defaults';
  fill('partitions', t.partition_list.map((p) => [[p.partition, 'n'], [p.broker < 0 ? '–' : p.broker, 'n'], p.state + (p.reason ? ': ' + p.reason : ''), [count(p.epoch), 'n'], [count(p.start), 'n'],
    [count(p.local_start), 'n'], [count(p.tiered), 'n'], [count(p.durable), 'n'], [count(p.end), 'n'], [bytes(p.local_bytes), 'n'],
    [bytes(p.archive_bytes), 'n'], [count(p.extents), 'n'], [duration(p.roll_lag_ms), 'n']]));
}

function showFiles(s) {
  $('files').replaceChildren(...s.files.map((f) =>
    el('span', count(f.base) + ' – ' + count(f.end) + ' · ' + bytes(f.bytes) + (f.active ? ' · being written' : ''), f.active ? 'file active' : 'file')));
}

let running = false;
async function refresh() {
  if (running) return;
  running = true;
  refreshStatus();
  try {
    const at = Date.now();
    const [c, t] = await Promise.all([get('/api/v1/cluster'), get('/api/v1/topics')]);
    const seconds = last ? (at - last.at) / 1000 : 0;
    topics = t.topics;
    $('topics-note').textContent = t.unanswered.length ? 'without what broker ' + t.unanswered.map((u) => u.broker).join(', ') + ' has: no answer' : '';
    showCluster(c, last && last.cluster, seconds);
    showTopics(last && last.topics, seconds);
    last = { at, cluster: c, topics };
    try { await showDetail(); } catch (e) { note(e.message); open = ''; }
    try { showFiles(await get('/api/v1/segments')); } catch (e) { $('files').textContent = e.message; }
    $('updated').textContent = 'updated ' + new Date(at).toLocaleTimeString();
  } catch (e) {
    $('health').textContent = 'unreachable';
    $('health').className = 'badge bad';
    $('updated').textContent = e.message;
  } finally {
    running = false;
  }
}

for (const th of document.querySelectorAll('#topics th[data-key]')) {
  th.addEventListener('click', () => {
    sort = { key: th.dataset.key, down: sort.key === th.dataset.key ? !sort.down : th.classList.contains('n') };
    showTopics(last && last.topics, 0);
  });
}
$('filter').addEventListener('input', () => showTopics(null, 0));
$('detail-close').addEventListener('click', () => { open = ''; $('detail').hidden = true; });
refresh();
setInterval(() => { if (!document.hidden) refresh(); }, interval);
