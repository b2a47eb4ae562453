// Puts the page together: the stream and the questions into the state, the state into the views, at most once a frame.
import { change, get } from './api.js';
import { show } from './dom.js';
import { ask } from './confirm.js';
import { addRounds, apply, emptyState, roundsOf, shownRun } from './store.js';
import { follow } from './stream.js';
import { eventList, facts, problems, roundPanel, runList } from './now.js';
import { members } from './members.js';
import { plots, wirePlots } from './plots.js';
import { timeline } from './timeline.js';
import { tree } from './tree.js';

const state = emptyState();
const place = (id) => document.getElementById(id);
const REPORTS_COME_MS = 1_500; // nodes report at most once a second
const TIMELINE_GROWS_MS = 10_000; // as long as reports may be missing from it
const CONTRIBUTIONS_ASKED_MAX = 20_000; // a round is as long as its list of contributors

// ---- the state into the page --------------------------------------------------------------------------------------

let due = false;
function render() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    renderNow();
  });
}

function renderNow() {
  const { state: connection, reason } = state.connection;
  const words = { connecting: 'connecting', live: 'live', lost: 'connection lost, trying again' };
  show(place('connection'), document.createTextNode(words[connection]));
  place('connection').dataset.state = connection;
  place('connection').title = reason;
  document.body.dataset.connection = connection;
  const federation = state.status?.federation ?? '';
  place('federation').textContent = federation;
  document.title = federation ? `${federation} · Fluvial` : 'Fluvial';
  const wrong = problems(state);
  place('problems').hidden = wrong.length === 0;
  show(place('problems'), wrong);
  show(place('facts'), facts(state));
  show(place('tree'), tree(state));
  show(place('round'), roundPanel(state));
  show(place('runs'), runList(state));
  show(place('events'), eventList(state));
  show(place('plots'), plots(state));
  show(place('spans'), timeline(state));
  show(place('table'), members(state, place('table').querySelector('input')?.value ?? ''));
}

// ---- questions ----------------------------------------------------------------------------------------------------

// Once at a time, and once more when it is asked for in between. What fails is tried again at the next event.
function once(question) {
  let running = false;
  let again = false;
  return async () => {
    again = true;
    if (running) return;
    running = true;
    while (again) {
      again = false;
      try {
        await question();
      } catch {
        break; // the stream says that the connection is lost
      }
      render();
    }
    running = false;
  };
}

const askRuns = once(async () => {
  state.runs = (await get('/v1/runs'))?.runs ?? [];
});

const askOpenRound = once(async () => {
  state.openRound = state.status?.run?.open ? await get(`/v1/rounds/open?run=${state.status.run.id}`) : null;
});

const asked = new Set(); // the runs whose rounds are here
const askRounds = once(async () => {
  const run = shownRun(state);
  if (run === null || asked.has(run)) return;
  const committed = state.runs.find(({ id }) => id === run)?.committed ?? state.status?.run?.round ?? 0;
  const sites = Math.max(1, state.nodes.size);
  const limit = Math.max(10, Math.min(300, Math.floor(CONTRIBUTIONS_ASKED_MAX / sites)));
  const answer = await get(`/v1/rounds?run=${run}&from=${Math.max(1, committed - limit + 1)}&limit=${limit}`);
  addRounds(state, answer?.rounds ?? []);
  asked.add(run);
});

let toldRound = null; // the last whose nodes have had the time to report what they did
let notKept = ''; // a run and its round that has no timeline
function willBeTold({ run, round }) {
  setTimeout(() => {
    if (run === shownRun(state)) toldRound = round;
    askTimeline();
  }, REPORTS_COME_MS);
}

const askTimeline = once(async () => {
  const run = shownRun(state);
  const last = roundsOf(state, run).at(-1)?.round;
  const round = state.timelineRound ?? Math.min(last, toldRound ?? last);
  if (run === null || !round) return;
  const { timeline: there } = state;
  const isHere = there?.run === run && there.round === round;
  if (isHere && (!there.missing?.length || Date.now() - there.asked > TIMELINE_GROWS_MS)) return;
  const answer = notKept === `${run} ${round}` ? null : await get(`/v1/rounds/${round}/timeline?run=${run}`);
  if (!answer) notKept = `${run} ${round}`;
  if (answer) state.timeline = { ...answer, asked: isHere ? there.asked : Date.now() };
  else if (state.timelineRound) state.timeline = { run, round, spans: [], words: '' };
});

async function askEverything() {
  await askRuns();
  await askRounds();
  await askOpenRound();
  await askTimeline();
}

// ---- what a person does -------------------------------------------------------------------------------------------

const actions = {
  change: ({ run, verb, name }) => ask(verb, run, name, () => change(run, verb)),
  'show-run': ({ run }) => {
    state.selectedRun = Number(run);
    state.timelineRound = null;
    state.timeline = null;
    toldRound = null;
    askEverything();
  },
  'show-round': ({ round }) => {
    state.timelineRound = round === 'last' ? null : Number(round);
    askTimeline();
  },
};

document.addEventListener('click', (event) => {
  const button = event.target.closest('[data-action]');
  if (!button) return;
  actions[button.dataset.action](button.dataset);
  render();
});
document.addEventListener('input', render);
addEventListener('resize', render);
wirePlots(place('plots'));

// ---- the stream into the state ------------------------------------------------------------------------------------

const then = {
  reset: askEverything,
  status: () => {
    askOpenRound();
    askTimeline();
  },
  state: askRuns,
  committed: willBeTold,
};

function begin() {
  get('/session').then(
    (session) => {
      state.readOnly = session?.read_only ?? true;
      render();
    },
    () => {},
  );
  follow('/v1/events', {
    event: (name, data) => {
      if (name === 'reset') asked.clear();
      apply(state, name, data);
      then[name]?.(data);
      render();
    },
    live: () => {
      state.connection = { state: 'live', reason: '', since: Date.now() };
      render();
    },
    lost: (reason) => {
      const since = state.connection.state === 'lost' ? state.connection.since : Date.now();
      state.connection = { state: 'lost', reason, since };
      render();
    },
  });
  setInterval(render, 1_000); // what is said in "seconds ago"
}

begin();
