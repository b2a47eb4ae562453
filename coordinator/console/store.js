// What the page knows. Pure: apply() takes an event of the stream into the state, the rest asks the state. Members that a
// coordinator does not send (it may be older than what is asked of it here) are simply not there.

const ROUNDS_MAX = 500; // of a run
const EVENTS_MAX = 200;

export function emptyState() {
  return {
    connection: { state: 'connecting', reason: '', since: Date.now() },
    readOnly: true,
    status: null,
    nodes: new Map(), // by id
    runs: [], // oldest first
    rounds: new Map(), // by run: Map(round -> what was committed)
    openRound: null, // with the sites' states, where the coordinator tells them
    windowGoal: null, // of the last window that the status told, where the run has windows
    selectedRun: null, // null: the active one
    timeline: null,
    timelineRound: null, // null: the last that is there
    edges: new Map(), // by node id: {up, down}, bytes of its last transfers, and so on
    events: [], // {key, at, kind, text}, oldest first
  };
}

export function apply(state, name, data) {
  switch (name) {
    case 'reset':
      state.status = data.status;
      noteGoal(state);
      state.nodes = new Map((data.nodes ?? []).map((node) => [node.id, node]));
      for (const node of state.nodes.values()) noteEdge(state, node);
      for (const event of data.recent ?? []) applyHistory(state, event.event, event);
      return;
    case 'status':
      state.status = data;
      noteGoal(state);
      if (!data.run?.open) state.openRound = null;
      return;
    case 'node':
      applyNode(state, data);
      return;
    default:
      applyHistory(state, name, data);
      anticipate(state, name, data);
  }
}

// Of a run or its open round: a window commits at its goal, and waits for nobody.
export function hasWindows(of) {
  return of?.mode === 'async';
}

function noteGoal(state) {
  state.windowGoal = state.status?.run?.open?.goal ?? state.windowGoal;
}

// What the next status will say: it comes up to a second after what happened.
function anticipate(state, name, event) {
  const run = state.status?.run;
  if (!run || run.id !== event.run) return;
  if (name === 'opened') {
    const goal = hasWindows(run) ? state.windowGoal : null;
    run.open = { round: event.round, attempt: event.attempt, participants: event.participants, in: 0, awaited: [], mode: run.mode, goal };
  }
  if (name === 'opened' || name === 'committed') {
    state.openRound = null;
    state.status.waits = [];
  }
  if (name === 'committed') {
    run.round = Math.max(run.round, event.round);
    if (run.open?.round <= event.round) run.open = null;
  }
  if (name === 'state') Object.assign(run, { status: event.status, reason: event.reason, waiting: '' });
}

function applyNode(state, node) {
  const before = state.nodes.get(node.id);
  const at = new Date().toISOString();
  if (node.removed) {
    state.nodes.delete(node.id);
    if (before) note(state, at, 'bad', `${before.name} is no member any more`);
    return;
  }
  state.nodes.set(node.id, node);
  noteEdge(state, node);
  if (!before) note(state, at, 'good', `${node.name} is a member now`);
  if (before && before.connected !== node.connected) {
    note(state, at, node.connected ? 'good' : 'warn', `${node.name} ${node.connected ? 'is back' : 'is away'}`);
  }
  if (node.quarantined && !before?.quarantined) {
    note(state, at, 'bad', `${node.name} is in quarantine: ${node.quarantine_reason}`);
  }
  if (before?.connected && node.connected && before.parent !== node.parent && node.parent) {
    note(state, at, 'plain', `${node.name} is below ${node.parent} now`);
  }
}

function applyHistory(state, name, event) {
  const of = `${name} ${event.run} ${event.round} ${event.attempt ?? ''} ${event.at ?? ''}`;
  switch (name) {
    case 'opened': {
      const again = event.attempt > 1 ? `, attempt ${event.attempt}` : '';
      note(state, event.at, 'plain', `Round ${event.round} opened${again}: ${event.participants} sites take part`, of);
      return;
    }
    case 'committed': {
      addRounds(state, [event]);
      const late = lateWords(event);
      const counted = `${event.contributors?.length ?? 0} of ${event.participants} sites`;
      const stale = event.stale > 0 ? `, ${event.stale} of an earlier round` : '';
      note(state, event.at, late ? 'warn' : 'good', `Round ${event.round} committed: ${counted}${stale}${late}`, of);
      return;
    }
    case 'evaluated': {
      const round = state.rounds.get(event.run)?.get(event.round);
      if (round) round.evaluation = event.evaluation;
      return;
    }
    case 'state': {
      const kind = event.status === 'paused' || event.status === 'stopped' ? 'warn' : 'good';
      const why = event.reason ? `: ${event.reason}` : '';
      note(state, event.at, kind, `Run ${event.run} is ${event.status}${why}`, of);
    }
  }
}

export function lateWords(round) {
  if (!round.late) return '';
  const named = (round.late_sites ?? []).map((site) => (site.reason ? `${site.name} (${site.reason})` : site.name));
  return `, late: ${named.length > 0 ? named.join(', ') : round.late}`;
}

function note(state, at, kind, text, key = `${at} ${text}`) {
  if (state.events.some((event) => event.key === key)) return;
  state.events.push({ key, at: at ?? new Date().toISOString(), kind, text });
  state.events.sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0));
  state.events.splice(0, state.events.length - EVENTS_MAX);
}

// Bytes between a node and its parent: of its session where that is told, else of the last transfers that were seen.
function noteEdge(state, node) {
  const edge = state.edges.get(node.id) ?? { up: null, down: null };
  if (node.bytes) {
    edge.up = node.bytes.up;
    edge.down = node.bytes.down;
  } else if (node.progress?.total_bytes) {
    if (node.doing === 'sending') edge.up = node.progress.total_bytes;
    if (node.doing === 'fetching') edge.down = node.progress.total_bytes;
  }
  state.edges.set(node.id, edge);
}

export function addRounds(state, list) {
  for (const round of list) {
    if (!state.rounds.has(round.run)) state.rounds.set(round.run, new Map());
    const of = state.rounds.get(round.run);
    of.set(round.round, { ...of.get(round.round), ...round });
    if (of.size > ROUNDS_MAX) of.delete(Math.min(...of.keys()));
  }
}

// ---- questions -------------------------------------------------------------------------------------------------------

// The runs that are told as they stand now, before those that the journal lists.
export function runsOf(state) {
  const now = new Map();
  for (const run of state.status?.runs ?? []) now.set(run.id, run);
  if (state.status?.run) now.set(state.status.run.id, { ...now.get(state.status.run.id), ...state.status.run });
  const all = state.runs.map((run) => ({ ...run, ...now.get(run.id), committed: now.get(run.id)?.round ?? run.committed }));
  for (const run of now.values()) if (!all.some(({ id }) => id === run.id)) all.push({ ...run, committed: run.round });
  return all.sort((a, b) => b.id - a.id);
}

export function shownRun(state) {
  return state.selectedRun ?? state.status?.run?.id ?? state.runs.at(-1)?.id ?? null;
}

// Oldest first.
export function roundsOf(state, run) {
  return [...(state.rounds.get(run)?.values() ?? [])].sort((a, b) => a.round - b.round);
}

// The coordinator, then each node behind its parent: {node, depth, children, parent}. Members that left are not in it.
export function treeOf(state) {
  const below = new Map();
  const names = new Set(['coordinator']);
  const members = [...state.nodes.values()].filter((node) => !node.revoked && !node.removed);
  for (const node of members) if (node.role === 'aggregator') names.add(node.name);
  for (const node of members) {
    const parent = names.has(node.parent) && node.parent !== node.name ? node.parent : 'coordinator';
    if (!below.has(parent)) below.set(parent, []);
    below.get(parent).push(node);
  }
  const rows = [{ node: { id: 0, name: 'coordinator', role: 'coordinator', connected: true }, depth: 0, parent: -1 }];
  const add = (name, parent) => {
    const children = (below.get(name) ?? []).sort(byRoleAndName);
    below.delete(name); // so a circle of leases ends, too
    for (const node of children) {
      rows.push({ node, depth: rows[parent].depth + 1, parent });
      if (node.role === 'aggregator') add(node.name, rows.length - 1);
    }
  };
  add('coordinator', 0);
  return rows;
}

function byRoleAndName(a, b) {
  if (a.role !== b.role) return a.role < b.role ? -1 : 1;
  return a.name.localeCompare(b.name, 'en', { numeric: true });
}

// Of the open round, where the coordinator tells it: {state: in|awaited|refused|declined|away, reason, doing, progress}.
export function siteInRound(state, name) {
  const told = state.openRound?.sites?.find((site) => site.name === name);
  if (told) return told;
  const open = state.status?.run?.open;
  return open?.awaited?.includes(name) ? { name, state: 'awaited' } : null;
}

// {title, points: [{round, value}]} of whatever was reported, in the run's rounds.
export function seriesOf(rounds) {
  const all = new Map();
  const add = (key, title, kind, round, value) => {
    if (typeof value !== 'number' || !Number.isFinite(value)) return;
    if (!all.has(key)) all.set(key, { key, title, kind, points: [] });
    all.get(key).points.push({ round, value });
  };
  for (const round of rounds) {
    for (const [name, value] of Object.entries(round.evaluation ?? {})) add(`e ${name}`, name, 'metric', round.round, value);
  }
  for (const round of rounds) {
    for (const [name, value] of Object.entries(round.metrics ?? {})) {
      add(`m ${name}`, `${name}, sites`, 'metric', round.round, value);
    }
  }
  for (const round of rounds) {
    add('seconds', 'time of a round', 'seconds', round.round, round.seconds);
    add('up', 'bytes up, in all', 'bytes', round.round, round.bytes_up);
    add('sites', 'sites counted', 'count', round.round, round.contributors?.length);
  }
  return [...all.values()];
}
