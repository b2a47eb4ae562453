// Everybody who is enrolled, as a table: connection, certificate, quarantine, pace.
import { h } from './dom.js';
import { away, clock, seconds } from './format.js';
import { roundsOf, shownRun } from './store.js';

const SHOWN_MAX = 300;

export function members(state, filter) {
  const wanted = filter.trim().toLowerCase();
  const all = [...state.nodes.values()].sort((a, b) => a.name.localeCompare(b.name, 'en', { numeric: true }));
  const problems = state.status?.problems ?? [];
  const shares = sharesOf(roundsOf(state, shownRun(state)));
  const found = all.filter((node) => wanted === '' || `${node.name} ${node.role} ${node.region} ${node.parent}`.toLowerCase().includes(wanted));
  if (all.length === 0) return h('p.empty', null, 'Nobody is enrolled yet.');
  return [
    h(
      'p.filter',
      null,
      h('label', null, 'Filter ', h('input', { type: 'search', 'aria-describedby': 'found', autocomplete: 'off' })),
      h('span.muted', { id: 'found', role: 'status' }, `${found.length} of ${all.length}`),
    ),
    h(
      'div.scroll',
      { tabindex: 0, role: 'region', 'aria-labelledby': 'members-title' },
      h(
        'table',
        null,
        h(
          'thead',
          null,
          h('tr', null, ['Name', 'Role', 'Region', 'State', 'Parent', 'Workers', 'Certificate ends', 'Time a round', 'Late', 'In commits'].map((text) => h('th', { scope: 'col' }, text))),
        ),
        h('tbody', null, found.slice(0, SHOWN_MAX).map((node) => row(node, problems, shares))),
      ),
    ),
    found.length > SHOWN_MAX && h('p.muted', null, `and ${found.length - SHOWN_MAX} more: filter, or fluvial nodes list`),
  ];
}

// Of the rounds that are here: in how many each site is, and how often with an update of an earlier round.
function sharesOf(rounds) {
  const shares = new Map();
  for (const { contributors = [] } of rounds) {
    for (const { name, staleness } of contributors) {
      const share = shares.get(name) ?? { rounds: 0, old: 0 };
      share.rounds += 1;
      if (staleness > 0) share.old += 1;
      shares.set(name, share);
    }
  }
  return { of: (name) => shares.get(name) ?? { rounds: 0, old: 0 }, rounds: rounds.length };
}

function shareText(node, shares) {
  if (node.role !== 'site' || shares.rounds === 0) return '–';
  const { rounds, old } = shares.of(node.name);
  return `${rounds} of ${shares.rounds}${old > 0 ? `, ${old} old` : ''}`;
}

function row(node, problems, shares) {
  const { kind, text } = stateOf(node);
  const certificate = certificateOf(node, problems);
  return h(
    'tr',
    { 'data-key': `member ${node.id}` },
    h('th', { scope: 'row' }, node.name),
    h('td', null, node.role),
    h('td', null, node.region),
    h('td.words', null, h('span.state', { 'data-kind': kind }, text)),
    h('td', null, node.parent ?? '–', node.parent_wished && node.parent_wished !== node.parent ? h('span.muted', null, ` (wished: ${node.parent_wished})`) : ''),
    h('td.number', null, typeof node.workers === 'number' && node.role === 'site' ? node.workers : '–'),
    h('td', null, h('span.state', { 'data-kind': certificate.kind }, certificate.text)),
    h('td.number', null, node.pace ? `${seconds(node.pace.p50_s)}` : '–'),
    h('td.number', null, node.pace ? `${node.pace.late} of ${node.pace.rounds}` : '–'),
    h('td.number', null, shareText(node, shares)),
  );
}

function stateOf(node) {
  if (node.revoked) return { kind: 'bad', text: 'revoked' };
  if (node.quarantined) return { kind: 'bad', text: `quarantine: ${node.quarantine_reason}` };
  if (node.ahead) return { kind: 'bad', text: `refused: ${node.ahead}` };
  const since = node.since ? ` since ${clock(node.since)}` : '';
  return node.connected ? { kind: 'good', text: `connected${since}` } : { kind: 'warn', text: `away${since}` };
}

// A day is a certificate's whole life, or the last of ninety: the coordinator says which end is a problem.
function certificateOf(node, problems) {
  if (!node.certificate_ends_at) return { kind: 'plain', text: '–' };
  const date = node.certificate_ends_at.slice(0, 10);
  if (new Date(node.certificate_ends_at) <= Date.now()) return { kind: 'bad', text: `ended ${date}` };
  const text = `${date}, ${away(node.certificate_ends_at)}`;
  const problem = problems.find(({ node: name, runbook }) => name === node.name && runbook?.endsWith('#fluvialcertificateexpiring'));
  if (!problem) return { kind: 'plain', text };
  return { kind: problem.severity === 'warning' ? 'warn' : 'bad', text };
}
