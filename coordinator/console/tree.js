// The tree as it is: a row a node, and left of the rows the lines, which grow towards the root as rivers do: their width
// is what has passed on them. Where a node's line is broken, the node is away.
import { h, svg } from './dom.js';
import { away, bytes, clock, percent, seconds } from './format.js';
import { bar } from './now.js';
import { hasWindows, roundsOf, shownRun, siteInRound, treeOf } from './store.js';

const SMALL = matchMedia('(max-width: 40rem)');
const rowHeight = () => (SMALL.matches ? 76 : 48); // as style.css has it
const STEP = 20;
const LEFT = 12;
const ROWS_MAX = 120; // beyond that the table of members is the better place

export function tree(state) {
  const rows = treeOf(state);
  if (rows.length === 1) {
    return h('p.empty', null, 'No members yet. Make a token for the first: fluvial token create --role site --name NAME');
  }
  const shown = rows.slice(0, ROWS_MAX);
  const depth = Math.max(...shown.map((row) => row.depth));
  const width = LEFT * 2 + STEP * depth;
  const late = lateOnes(state);
  return [
    h(
      'div.nodes',
      null,
      lines(shown, width, state),
      h(
        'ul',
        null,
        shown.map((row) => nodeRow(state, row, width, late)),
      ),
    ),
    rows.length > ROWS_MAX && h('p.muted', null, `and ${rows.length - ROWS_MAX} more: see Members`),
  ];
}

// Sites that were late in the last committed round: name -> reason.
function lateOnes(state) {
  const last = roundsOf(state, shownRun(state)).at(-1);
  return new Map((last?.late_sites ?? []).map((site) => [site.name, { round: last.round, reason: site.reason }]));
}

// ---- the lines ----------------------------------------------------------------------------------------------------

function lines(rows, width, state) {
  const height = rowHeight();
  const flow = rows.map(({ node }) => Math.max(0, state.edges.get(node.id)?.up ?? 0));
  const sum = [...flow]; // an aggregator's own where it is known, else what is below it
  for (let i = rows.length - 1; i > 0; --i) {
    if (rows[i].node.role === 'aggregator' && flow[i] === 0) {
      sum[i] = rows.reduce((total, row, k) => total + (row.parent === i ? sum[k] : 0), 0);
    }
  }
  const most = Math.max(1, ...rows.map((_, i) => rows.reduce((total, row, k) => total + (row.parent === i ? sum[k] : 0), 0)));
  const thick = (bytesOf) => (1.6 + 4.4 * Math.sqrt(bytesOf / most)).toFixed(1);
  const x = (row) => LEFT + STEP * row.depth;
  const y = (i) => height / 2 + height * i;
  const paths = [];
  rows.forEach((row, parent) => {
    const children = rows.map((_, i) => i).filter((i) => rows[i].parent === parent);
    let from = parent;
    children.forEach((child, k) => {
      const through = children.slice(k).filter((i) => rows[i].node.connected);
      const behind = through.reduce((total, i) => total + sum[i], 0);
      const kind = through.length > 0 ? 'live' : 'gone';
      const start = from === parent ? y(parent) + 6 : y(from) - 8;
      paths.push(svg('path', { class: kind, 'stroke-width': thick(behind), d: `M${x(row)} ${start}V${y(child) - 8}` }));
      paths.push(
        svg('path', {
          class: rows[child].node.connected ? 'live' : 'gone',
          'stroke-width': thick(sum[child]),
          d: `M${x(row)} ${y(child) - 8}q0 8 8 8H${x(rows[child]) - 5}`,
        }),
      );
      from = child;
    });
  });
  const dots = rows.map((row, i) =>
    svg('circle', { class: row.node.connected ? row.node.role : 'gone', cx: x(row), cy: y(i), r: row.depth === 0 ? 6.5 : 5 }),
  );
  return svg('svg', { class: 'rivers', width, height: height * rows.length, 'aria-hidden': 'true' }, paths, dots);
}

// ---- the rows -----------------------------------------------------------------------------------------------------

function nodeRow(state, { node, depth }, width, late) {
  const edge = state.edges.get(node.id);
  const { kind, text, note, progress } = stateOf(state, node, late.get(node.name));
  const meta = [node.role === 'coordinator' ? null : node.role, node.region, workersOf(node)].filter(Boolean).join(' · ');
  return h(
    'li',
    { 'data-key': `node ${node.id}`, 'data-kind': kind, 'data-depth': Math.min(depth, 6) },
    h('div.name', null, h('strong', null, node.name), h('span.muted', null, meta)),
    h(
      'div.doing',
      null,
      h('span.state', { 'data-kind': kind }, text),
      progress ? bar(progress.part, `${node.name}: ${progress.words}`) : null,
      note && h('span.muted', { title: note }, note),
    ),
    h(
      'div.bytes',
      null,
      edge && (edge.up !== null || edge.down !== null)
        ? [
            h('span', { title: 'to its parent' }, h('span.sr', null, 'up '), `↑ ${bytes(edge.up ?? NaN)}`),
            h('span', { title: 'from its parent' }, h('span.sr', null, 'down '), `↓ ${bytes(edge.down ?? NaN)}`),
          ]
        : paceOf(node),
    ),
  );
}

function workersOf(node) {
  if (node.role !== 'site' || typeof node.workers !== 'number' || !node.connected) return null;
  return node.workers === 0 ? 'no worker' : `${node.workers} worker${node.workers === 1 ? '' : 's'}`;
}

function paceOf(node) {
  if (!node.pace || !node.connected) return null;
  return h('span', { title: 'its median time from opening to sum' }, `${seconds(node.pace.p50_s)} a round`);
}

// {kind, text, note, progress}: how it is, in words; a bar where bytes are on their way.
function stateOf(state, node, late) {
  if (node.role === 'coordinator') return { kind: 'good', text: coordinatorWords(state), note: '' };
  if (node.quarantined) return { kind: 'bad', text: 'in quarantine', note: node.quarantine_reason };
  if (node.ahead) return { kind: 'bad', text: 'refused', note: node.ahead };
  if (!node.connected) return { kind: 'warn', text: 'away', note: awayNote(state, node) };
  const inRound = node.role === 'site' ? siteInRound(state, node.name) : null;
  const doing = node.doing && node.doing !== 'idle' ? node.doing : '';
  const note = noteOf(node, inRound, late);
  const progress = progressOf(node);
  if (inRound && inRound.state !== 'in' && inRound.state !== 'awaited') {
    return { kind: 'warn', text: inRound.state, note: inRound.reason || note.text };
  }
  if (inRound?.state === 'in') return { kind: 'good', text: 'in the sum', note: note.is_amiss ? note.text : '' };
  const isAwaited = inRound && !hasWindows(state.status?.run?.open);
  const text = [doing || (isAwaited ? 'awaited' : 'connected'), progress?.words].filter(Boolean).join(', ');
  const kind = note.is_amiss || node.workers === 0 ? 'warn' : doing && doing !== 'waiting' ? 'busy' : 'plain';
  return { kind, text, note: note.text, progress };
}

function coordinatorWords(state) {
  const run = state.status?.run;
  if (!run) return 'no run';
  return run.open ? `${hasWindows(run.open) ? 'window' : 'round'} ${run.open.round} is open` : run.status;
}

function awayNote(state, node) {
  const why = (state.status?.waits ?? []).find((wait) => wait.node === node.name)?.reason ?? siteInRound(state, node.name)?.reason;
  const since = node.since ? `since ${clock(node.since)} (${away(node.since)})` : '';
  return [since, why !== 'away' && !why?.startsWith('not connected') && why].filter(Boolean).join(', ');
}

// What there is to say of a connected node, and whether it is anything that somebody might do something about.
function noteOf(node, inRound, late) {
  const amiss = (text) => ({ text, is_amiss: true });
  if (node.past) return amiss(`past ${node.past.aggregator}, which ${node.past.reason}`);
  if (inRound?.reason && inRound.do) return amiss(inRound.reason);
  if (node.parent_wished && node.parent_wished !== node.parent) return amiss(`would rather be below ${node.parent_wished}`);
  if (late) return amiss(`late in round ${late.round}${late.reason ? `: ${late.reason}` : ''}`);
  if (node.pace?.straggler) return amiss(`slow: ${node.pace.score.toFixed(1)} times the median site`);
  return { text: '', is_amiss: false };
}

function progressOf(node) {
  const { done_bytes: done, total_bytes: total, eta_s: eta } = node.progress ?? {};
  if (!total || done >= total) return null;
  const left = Number.isFinite(eta) ? `, ${seconds(eta)} left` : '';
  return { part: done / total, words: `${percent(done / total)} of ${bytes(total)}${left}` };
}
