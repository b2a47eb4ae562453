// Whatever was reported, over the rounds: a small plot each, one cursor for all of them, and a table behind each.
import { h, svg } from './dom.js';
import { bytes, metric, seconds } from './format.js';
import { roundsOf, seriesOf, shownRun } from './store.js';

const WIDTH = 250;
const HEIGHT = 116;
const INNER = { left: 42, right: 8, top: 9, bottom: 18 };
const PLOTS_MAX = 24;

const format = { metric, seconds, bytes, count: metric };
const openTables = new Set(); // by the series' key
let cursor = null; // a round, while the pointer is over a plot

export function plots(state) {
  const run = shownRun(state);
  const series = seriesOf(roundsOf(state, run));
  if (series.length === 0) return h('p.empty', null, 'Nothing yet: the first committed round brings the first figures.');
  return [
    h('div.plots', null, series.slice(0, PLOTS_MAX).map(card)),
    series.length > PLOTS_MAX && h('p.muted', null, `and ${series.length - PLOTS_MAX} more reported figures: fluvial rounds show`),
  ];
}

function card(series) {
  const { points, key, title, kind } = series;
  const at = (cursor !== null && points.find(({ round }) => round === cursor)) || points.at(-1);
  return h(
    'figure.plot',
    { 'data-key': `plot ${key}` },
    h('figcaption', null, h('span', null, title), h('span.value', null, format[kind](at.value), cursor !== null && h('small', null, ` round ${at.round}`))),
    drawing(series, at),
    h(
      'details',
      { 'data-table': key },
      h('summary', { 'aria-label': `Table of ${title}` }, 'Table'),
      openTables.has(key) && table(series),
    ),
  );
}

function table({ points, title, kind }) {
  return h(
    'div.scroll',
    { tabindex: 0, role: 'region', 'aria-label': `${title} by round` },
    h(
      'table',
      null,
      h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'Round'), h('th.number', { scope: 'col' }, title))),
      h(
        'tbody',
        null,
        [...points].reverse().map(({ round, value }) =>
          h('tr', { 'data-key': `row ${round}` }, h('th', { scope: 'row' }, round), h('td.number', null, format[kind](value))),
        ),
      ),
    ),
  );
}

// ---- the drawing --------------------------------------------------------------------------------------------------

// Round figures around the values: at most four ticks.
export function ticksOf(least, most) {
  if (least === most) {
    const around = Math.abs(least) || 1;
    return ticksOf(least - around / 2, most + around / 2);
  }
  const rough = (most - least) / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const ticks = [];
  for (let at = Math.floor(least / step) * step; at < most + step * 0.999; at += step) ticks.push(Number(at.toPrecision(12)));
  return ticks;
}

function drawing({ points, title, kind, key }, at) {
  const values = points.map(({ value }) => value);
  const floor = kind === 'metric' ? Math.min(...values) : Math.min(0, ...values);
  const ticks = ticksOf(floor, Math.max(...values));
  const [low, high] = [ticks[0], ticks.at(-1)];
  const [first, last] = [points[0].round, points.at(-1).round];
  const x = (round) => INNER.left + ((WIDTH - INNER.left - INNER.right) * (round - first)) / Math.max(1, last - first);
  const y = (value) => HEIGHT - INNER.bottom - ((HEIGHT - INNER.top - INNER.bottom) * (value - low)) / (high - low);
  const place = ({ round, value }) => `${x(round).toFixed(1)} ${y(value).toFixed(1)}`;
  const line = `M${points.map(place).join('L')}`;
  const words = `${title}, rounds ${first} to ${last}: from ${format[kind](values[0])} to ${format[kind](values.at(-1))}`;
  return svg(
    'svg',
    {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: 'img',
      'aria-label': words,
      'data-plot': key,
      'data-first': first,
      'data-last': last,
    },
    ticks.map((tick) => [
      svg('line', { class: 'grid', x1: INNER.left, x2: WIDTH - INNER.right, y1: y(tick), y2: y(tick) }),
      svg('text', { x: INNER.left - 6, y: y(tick) + 3.5, 'text-anchor': 'end' }, format[kind](tick)),
    ]),
    svg('text', { x: INNER.left, y: HEIGHT - 5 }, first),
    last !== first && svg('text', { x: WIDTH - INNER.right, y: HEIGHT - 5, 'text-anchor': 'end' }, last),
    points.length > 1 && svg('path', { class: 'area', d: `${line}L${x(last).toFixed(1)} ${y(low)}L${x(first).toFixed(1)} ${y(low)}Z` }),
    points.length > 1 && svg('path', { class: 'line', d: line }),
    cursor !== null && svg('line', { class: 'cursor', x1: x(at.round), x2: x(at.round), y1: INNER.top, y2: HEIGHT - INNER.bottom }),
    svg('circle', { class: 'dot', cx: x(at.round).toFixed(1), cy: y(at.value).toFixed(1), r: 3.2 }),
  );
}

// ---- pointer and tables -------------------------------------------------------------------------------------------

export function wirePlots(container) {
  const changed = () => container.dispatchEvent(new Event('input', { bubbles: true }));
  container.addEventListener('pointermove', (event) => {
    const plot = event.target.closest('[data-plot]');
    let round = null;
    if (plot) {
      const box = plot.getBoundingClientRect();
      const [first, last] = [Number(plot.dataset.first), Number(plot.dataset.last)];
      const left = (INNER.left / WIDTH) * box.width;
      const part = (event.clientX - box.left - left) / (box.width - left - (INNER.right / WIDTH) * box.width);
      round = Math.round(first + Math.max(0, Math.min(1, part)) * (last - first));
    }
    if (round === cursor) return;
    cursor = round;
    changed();
  });
  container.addEventListener('pointerleave', () => {
    cursor = null;
    changed();
  });
  container.addEventListener(
    'toggle',
    (event) => {
      const { table: key } = event.target.dataset;
      if (event.target.open) openTables.add(key);
      else openTables.delete(key);
      changed();
    },
    true, // a toggle does not rise by itself
  );
}

