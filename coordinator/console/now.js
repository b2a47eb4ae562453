// What is going on: what is wrong, the figures in short, the open round, the runs, what happened lately.
import { h, prose } from './dom.js';
import { away, clock, count, metric, percent, seconds } from './format.js';
import { hasWindows, roundsOf, runsOf, seriesOf, shownRun, treeOf } from './store.js';

const EVENTS_SHOWN = 40;
const RUNS_SHOWN = 8;

export function bar(part, label, kind = '') {
  const value = Math.max(0, Math.min(1, part || 0));
  return h('progress', { class: kind, max: 1, value: value.toFixed(3), 'aria-label': label });
}

// ---- problems -----------------------------------------------------------------------------------------------------

export function problems(state) {
  const list = [...(state.status?.problems ?? [])];
  if (state.status?.fault && !list.some(({ what }) => what?.includes(state.status.fault))) {
    list.push({ severity: 'error', what: state.status.fault, do: 'free or repair the disk, then fluvial run resume; start the coordinator again where it says so' });
  }
  if (state.connection.state === 'lost') {
    const since = `for ${seconds((Date.now() - state.connection.since) / 1000)}`;
    list.unshift({
      severity: 'error',
      what: `no connection to the coordinator ${since}: ${state.connection.reason}`,
      do: 'what is shown below is how it stood; the page goes on by itself once the coordinator answers',
    });
  }
  return list.map((problem) =>
    h(
      'div.problem',
      { 'data-severity': problem.severity, 'data-key': `${problem.what} ${problem.node ?? ''}` },
      h('strong', null, problem.severity === 'warning' ? 'Warning' : 'Problem'),
      h(
        'div',
        null,
        h('p', null, problem.node && !problem.what.includes(problem.node) ? `${problem.node}: ` : '', problem.what, problem.since && ` (${away(problem.since)})`),
        problem.do && h('p.muted', null, prose(problem.do), problem.runbook && ` (${problem.runbook})`),
      ),
    ),
  );
}

// ---- in short -----------------------------------------------------------------------------------------------------

export function facts(state) {
  const nodes = [...state.nodes.values()].filter((node) => !node.revoked);
  const there = (role) => nodes.filter((node) => node.role === role && node.connected).length;
  const all = (role) => nodes.filter((node) => node.role === role).length;
  const run = shownRun(state);
  const rounds = roundsOf(state, run);
  const last = rounds.at(-1);
  const shown = runsOf(state).find(({ id }) => id === run);
  const list = [];
  const add = (name, value, of, note) =>
    list.push(h('div.fact', { 'data-key': name }, h('dt', null, name), h('dd', null, value, of && h('small', null, ` ${of}`)), note));
  add(hasWindows(shown) ? 'Window' : 'Round', shown ? String(shown.committed ?? 0) : '–', shown && `of ${shown.rounds}`);
  add('Sites', String(there('site')), `of ${all('site')} connected`);
  if (all('aggregator') > 0) add('Aggregators', String(there('aggregator')), `of ${all('aggregator')} connected`);
  add('Last round', last ? seconds(last.seconds) : '–', last && `${last.contributors?.length ?? 0} of ${last.participants} sites`);
  const series = seriesOf(rounds).filter(({ kind }) => kind === 'metric');
  for (const one of series.slice(0, 3)) add(one.title, metric(one.points.at(-1).value), `in round ${one.points.at(-1).round}`);
  return h('dl', null, list);
}

// ---- the open round -----------------------------------------------------------------------------------------------

export function roundPanel(state) {
  const run = state.status?.run;
  const open = run?.open;
  if (!open) return [h('p.empty', null, noRoundWords(run)), waits(state)];
  const isWindow = hasWindows(open);
  const elapsed = Number.isFinite(open.open_s) ? `, open for ${seconds(open.open_s)}` : '';
  const parts = [
    h(
      'p.headline',
      null,
      h('strong', null, `${isWindow ? 'Window' : 'Round'} ${open.round}`),
      open.attempt > 1 ? ` · attempt ${open.attempt}` : '',
      open.pass ? ` · pass ${open.pass.index + 1} of ${open.pass.count}` : '',
      elapsed,
    ),
    isWindow ? tier('Contributions', open.in, open.goal ?? open.participants) : tier('All sites', open.in, open.participants),
    ...tiers(state),
    Number.isFinite(open.hard_left_s) && h(
      'p.muted',
      null,
      `a quorum${open.quorum ? ` of ${open.quorum}` : ''} is enough ${open.soft_left_s > 0 ? `in ${seconds(open.soft_left_s)}` : 'from now on'}`,
      ` · next attempt in ${seconds(open.hard_left_s)}`,
    ),
  ];
  return [...parts, waits(state)];
}

function noRoundWords(run) {
  if (!run) return 'No run yet. Start one: fluvial run start plan.toml';
  if (run.status === 'running') return run.waiting ? `${run.waiting[0].toUpperCase()}${run.waiting.slice(1)}.` : 'Between two rounds.';
  return run.reason ? `The run is ${run.status}: ${run.reason}` : `The run is ${run.status}.`;
}

function tier(name, inside, all) {
  return h(
    'div.tier',
    { 'data-key': name },
    h('span', null, name),
    h('span.number', null, `${inside} of ${all}`),
    bar(all ? inside / all : 0, `${name}: ${inside} of ${all} in`, inside >= all ? 'good' : ''),
  );
}

// An aggregator's share of the round, where the coordinator tells each site's state.
function tiers(state) {
  if (!state.openRound?.sites) return [];
  const of = new Map(state.openRound.sites.map((site) => [site.name, site]));
  const rows = treeOf(state);
  const shares = rows.map(() => [0, 0]);
  for (let i = rows.length - 1; i > 0; --i) {
    const told = rows[i].node.role === 'site' ? of.get(rows[i].node.name) : null;
    if (told) shares[i] = [told.state === 'in' ? 1 : 0, 1];
    shares[rows[i].parent][0] += shares[i][0];
    shares[rows[i].parent][1] += shares[i][1];
  }
  return rows
    .map(({ node }, i) => ({ node, share: shares[i] }))
    .filter(({ node, share }) => node.role === 'aggregator' && share[1] > 0)
    .map(({ node, share }) => tier(node.name, ...share));
}

function waits(state) {
  const list = state.status?.waits ?? [];
  const open = state.status?.run?.open;
  const awaited = hasWindows(open) ? [] : (open?.awaited ?? []);
  const items = list.length > 0 ? list : awaited.map((node) => ({ node, what: 'its update' }));
  if (items.length === 0) return null;
  return [
    h('h3', null, 'Waits for'),
    h(
      'ul.waits',
      null,
      items.slice(0, 12).map((item) =>
        h(
          'li',
          { 'data-key': `${item.node} ${item.what}`, class: item.severity === 'info' ? 'muted' : null },
          h('strong', null, item.node || item.what),
          item.node && item.what ? ` ${item.what}` : '',
          item.reason ? h('span', null, `: ${item.reason}`) : '',
          item.since && !item.reason?.includes('since') && h('span.muted', null, ` since ${clock(item.since)}`),
          item.do && h('span.do', null, prose(item.do)),
        ),
      ),
      items.length > 12 && h('li.muted', null, `and ${items.length - 12} more`),
    ),
  ];
}

// ---- runs ---------------------------------------------------------------------------------------------------------

export function runList(state) {
  const runs = runsOf(state);
  if (runs.length === 0) return h('p.empty', null, 'None yet.');
  const shown = shownRun(state);
  return h(
    'ul.runs',
    null,
    runs.slice(0, RUNS_SHOWN).map((run) => {
      const word = hasWindows(run) ? 'window' : 'round';
      return h(
        'li',
        { 'data-key': `run ${run.id}` },
        h(
          'div.run-head',
          null,
          h('span.pill', { 'data-state': run.status }, run.status),
          h('strong', null, `${run.id} ${run.name}`),
          h('span.muted', null, `${run.committed ?? 0} of ${count(run.rounds, word)} · ${run.codec}`),
        ),
        bar((run.committed ?? 0) / run.rounds, `run ${run.id}: ${percent((run.committed ?? 0) / run.rounds)} of its ${word}s`),
        (run.waiting || run.reason) && h('p.reason', null, run.waiting || run.reason),
        h('div.buttons', null, runButtons(state, run, shown)),
      );
    }),
    runs.length > RUNS_SHOWN && h('li.muted', null, `and ${runs.length - RUNS_SHOWN} earlier ones: fluvial run list`),
  );
}

function runButtons(state, run, shown) {
  const button = (action, text, more) =>
    h('button', { type: 'button', 'data-action': action, 'data-run': run.id, 'data-name': run.name, ...more }, text);
  const verb = (name, text) => button('change', text, { 'data-verb': name, 'aria-label': `${text} run ${run.id}` });
  const buttons = [];
  if (!state.readOnly && run.status === 'running') buttons.push(verb('pause', 'Pause'));
  if (!state.readOnly && run.status === 'paused') buttons.push(verb('resume', 'Resume'));
  if (!state.readOnly && (run.status === 'running' || run.status === 'paused')) buttons.push(verb('stop', 'Stop'));
  if (run.id !== shown) buttons.push(button('show-run', 'Show', { 'aria-label': `Show run ${run.id} below` }));
  return buttons;
}

// ---- events -------------------------------------------------------------------------------------------------------

export function eventList(state) {
  if (state.events.length === 0) return h('p.empty', null, 'Nothing has happened since this page looks.');
  return h(
    'ol.log',
    { tabindex: 0, 'aria-label': 'Recent events, the newest first' },
    state.events
      .slice(-EVENTS_SHOWN)
      .reverse()
      .map((event) =>
        h('li', { 'data-key': event.key, 'data-kind': event.kind }, h('time', { datetime: event.at }, clock(event.at)), h('span', null, event.text)),
      ),
  );
}

