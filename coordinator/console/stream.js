// The coordinator's event stream (server-sent events), which comes back by itself and goes on where it was.
// By fetch() and not by EventSource: that one gives up for good when it is answered with an error, and says nothing of why.

const SILENCE_MAX_MS = 30_000; // the coordinator says something every ten seconds
const WAIT_MIN_MS = 1_000;
const WAIT_MAX_MS = 10_000;

// Takes text in pieces, calls back with {id, event, data} for each event that is whole.
export function parser(onEvent) {
  let rest = '';
  let event = {};
  return (text) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (line === '') {
        if (event.data !== undefined) onEvent(event);
        event = {};
        continue;
      }
      const colon = line.indexOf(':');
      if (colon <= 0) continue; // a comment
      const value = line.slice(colon + 1).replace(/^ /, '');
      const field = line.slice(0, colon);
      event[field] = field === 'data' && event.data !== undefined ? `${event.data}\n${value}` : value;
    }
  };
}

// `on.event(name, data)`, `on.live()`, `on.lost(reason)`.
export async function follow(path, on) {
  let lastId = '';
  for (let wait = WAIT_MIN_MS; ; wait = Math.min(WAIT_MAX_MS, wait * 1.6)) {
    let reason = 'the stream ended';
    try {
      await read(path, lastId, {
        live: () => {
          wait = WAIT_MIN_MS;
          on.live();
        },
        event: ({ id, event, data }) => {
          if (id) lastId = id;
          on.event(event, JSON.parse(data));
        },
      });
    } catch (error) {
      reason = error.message;
    }
    on.lost(reason);
    await new Promise((go) => setTimeout(go, wait));
  }
}

async function read(path, lastId, on) {
  const aborted = new AbortController();
  let timer;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => aborted.abort(new Error('nothing heard for 30 s')), SILENCE_MAX_MS);
  };
  try {
    heard();
    const headers = { accept: 'text/event-stream', ...(lastId && { 'last-event-id': lastId }) };
    const response = await fetch(path, { headers, signal: aborted.signal, cache: 'no-store' });
    if (!response.ok) throw new Error(await words(response));
    on.live();
    const take = parser(on.event);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      heard();
      take(value);
    }
  } finally {
    clearTimeout(timer);
    aborted.abort();
  }
}

// What an answer that is no success says.
export async function words(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).message ?? text;
  } catch {
    return text.trim() || `the answer's status is ${response.status}`;
  }
}
