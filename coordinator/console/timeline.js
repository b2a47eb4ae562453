// One round, as the nodes spent it: a lane a node, a bar a span, what decided the round's length marked and in words.
import { h, svg } from './dom.js';
import { axisTime, percent, seconds } from './format.js';
import { roundsOf, shownRun, treeOf } from './store.js';

const LANE = 18;
const NODES_MAX = 60;
const LANES_MAX = 5; // of a node; further spans lie on the last
const KINDS = ['fetch', 'vector', 'train', 'reduce', 'encode', 'persist', 'send', 'stage', 'accumulate', 'finalise', 'fsync', 'publish'];
const WHAT = {
  fetch: 'fetching the model', vector: "fetching the codec's vector", train: 'training', reduce: 'averaging the workers', encode: 'encoding', persist: 'writing the update',
  send: 'uploading', stage: 'receiving', accumulate: 'adding', finalise: 'finalising', fsync: 'syncing the disk', publish: 'publishing', waiting: 'waiting',
};

export function timeline(state, width = document.getElementById('spans').clientWidth) {
  const run = shownRun(state);
  const rounds = roundsOf(state, run).map(({ round }) => round);
  const there = state.timeline?.run === run ? state.timeline : null;
  if (rounds.length === 0) return h('p.empty', null, 'The first committed round will be here.');
  const round = there?.round ?? state.timelineRound ?? rounds.at(-1);
  return [
    chooser(rounds, round, state.timelineRound === null),
    !there || there.spans.length === 0
      ? h('p.empty', null, there ? `Round ${round} is not kept any more: the last 32 are.` : 'No spans have been reported yet.')
      : drawing(state, there, width),
  ];
}

function chooser(rounds, round, follows) {
  const before = rounds.filter((other) => other < round).at(-1);
  const behind = rounds.find((other) => other > round);
  const button = (text, to, label, more) =>
    h('button', { type: 'button', 'data-action': 'show-round', 'data-round': to, 'aria-label': label, disabled: to === undefined, ...more }, text);
  return h(
    'div.buttons.chooser',
    null,
    button('←', before, 'The round before'),
    h('strong', null, `Round ${round}`),
    button('→', behind, 'The round after'),
    button('Follow', 'last', 'Always the last round', { 'aria-pressed': String(follows) }),
  );
}

function drawing(state, told, width) {
  const total = Math.max(told.seconds ?? 0, ...told.spans.map((span) => span.end_s), 0.001);
  const lanes = byNode(state, told);
  const shown = lanes.slice(0, NODES_MAX);
  const label = width < 560 ? 92 : 150;
  const room = Math.max(120, width - label - 8);
  return [
    told.words && h('p.headline', null, told.words),
    path(told.critical ?? [], told.seconds > 0 ? told.seconds : total), // spans may end behind the commit
    h(
      'div.lanes',
      null,
      shown.map(({ node, role, spans }) =>
        h(
          'div.lane',
          { 'data-key': `lane ${node}` },
          h('span', { title: role }, node),
          lane(spans, total, room, told.critical ?? []),
        ),
      ),
      h('div.lane.axis', null, h('span'), h('div', null, [0, 0.25, 0.5, 0.75, 1].map((part) => h('span', null, axisTime(part * total, total))))),
    ),
    lanes.length > NODES_MAX && h('p.muted', null, `and ${lanes.length - NODES_MAX} more nodes: fluvial rounds trace ${told.round}`),
    legend(told.spans),
    notes(told),
    h('details', null, h('summary', { 'aria-label': 'Table of the spans' }, 'Table'), table(told.spans)),
  ];
}

function byNode(state, told) {
  const order = new Map(treeOf(state).map(({ node }, i) => [node.name, i]));
  const nodes = new Map();
  for (const span of told.spans) {
    if (!nodes.has(span.node)) nodes.set(span.node, { node: span.node, role: span.role, spans: [] });
    nodes.get(span.node).spans.push(span);
  }
  return [...nodes.values()].sort((a, b) => (order.get(a.node) ?? 1e9) - (order.get(b.node) ?? 1e9));
}

const whatOf = (span) => (WHAT[span.name] ?? span.name) + (span.of ? ` of ${span.of}` : '');
const isCritical = (critical, span) => critical.some(({ name, node }) => name === span.name && node === span.node);

// Spans that overlap lie below each other.
export function rowsOf(spans) {
  const ends = [];
  return [...spans]
    .sort((a, b) => a.start_s - b.start_s)
    .map((span) => {
      let row = ends.findIndex((end) => end <= span.start_s + 1e-6);
      if (row < 0) row = ends.length;
      ends[row] = span.end_s;
      return { span, row: Math.min(row, LANES_MAX - 1) };
    });
}

function lane(spans, total, room, critical) {
  const rows = rowsOf(spans);
  const height = LANE * (1 + Math.max(...rows.map(({ row }) => row)));
  const x = (at) => (room * Math.max(0, at)) / total;
  return svg(
    'svg',
    { width: room, height, role: 'img', 'aria-label': spans.map((span) => `${whatOf(span)} ${seconds(span.end_s - span.start_s)}`).join(', ') },
    rows.map(({ span, row }) => {
      const length = Math.max(2, x(span.end_s) - x(span.start_s));
      const name = KINDS.includes(span.name) ? span.name : 'other';
      return svg(
        'g',
        { class: `span ${name}${isCritical(critical, span) ? ' critical' : ''}` },
        svg('title', null, `${whatOf(span)}: ${seconds(span.end_s - span.start_s)}, from ${seconds(span.start_s)} on`),
        svg('rect', { x: x(span.start_s).toFixed(1), y: row * LANE + 2, width: length.toFixed(1), height: LANE - 4, rx: 3 }),
        length > 7 * span.name.length + 6 && svg('text', { x: (x(span.start_s) + 5).toFixed(1), y: row * LANE + 12.5 }, span.name),
      );
    }),
  );
}

// What took a hundredth of the round or more; the rest together.
function path(critical, total) {
  const long = critical.filter((step) => step.seconds >= total / 100);
  const rest = critical.filter((step) => !long.includes(step)).reduce((sum, step) => sum + step.seconds, 0);
  if (long.length === 0) return null;
  const part = (value) => h('small', null, ` ${percent(value / total)}`);
  return h(
    'ol.critical',
    { 'aria-label': 'What the round took its time for' },
    long.map((step) => h('li', null, h('strong', null, seconds(step.seconds)), ` ${WHAT[step.name] ?? step.name} at ${step.node}`, part(step.seconds))),
    rest >= total / 100 && h('li', null, h('strong', null, seconds(rest)), ` in ${critical.length - long.length} short steps`, part(rest)),
  );
}

function legend(spans) {
  const names = [...new Set(spans.map(({ name }) => name))].sort((a, b) => KINDS.indexOf(a) - KINDS.indexOf(b));
  return h(
    'ul.legend',
    null,
    names.map((name) => h('li', null, svg('svg', { width: 12, height: 12, 'aria-hidden': 'true' }, svg('g', { class: `span ${KINDS.includes(name) ? name : 'other'}` }, svg('rect', { width: 12, height: 12, rx: 3 }))), ` ${name}`)),
    h('li', null, svg('svg', { width: 14, height: 14, 'aria-hidden': 'true' }, svg('g', { class: 'span critical none' }, svg('rect', { x: 1, y: 1, width: 12, height: 12, rx: 3 }))), ' decided the length'),
  );
}

function notes(told) {
  const unsure = Math.max(0, ...(told.clocks ?? []).map((clock) => clock.uncertainty_s ?? 0));
  const words = [];
  if (unsure > 0) words.push(`times of other nodes are right to ${seconds(unsure)}`);
  if (told.missing?.length > 0) words.push(`nothing was heard from ${told.missing.join(', ')}`);
  return words.length > 0 && h('p.muted', null, words.join('; '));
}

function table(spans) {
  return h(
    'div.scroll',
    { tabindex: 0, role: 'region', 'aria-label': 'Spans of the round' },
    h(
      'table',
      null,
      h('thead', null, h('tr', null, ['Node', 'Span', 'From', 'To', 'Took'].map((text) => h('th', { scope: 'col' }, text)))),
      h(
        'tbody',
        null,
        spans.map((span) =>
          h('tr', null, h('th', { scope: 'row' }, span.node), h('td', null, whatOf(span)), [span.start_s, span.end_s, span.end_s - span.start_s].map((value) => h('td.number', null, seconds(value)))),
        ),
      ),
    ),
  );
}
