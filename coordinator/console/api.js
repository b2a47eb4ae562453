// Questions to the coordinator, and the three things that this page can change.
import { words } from './stream.js';

// Null where the coordinator has no such thing.
export async function get(path) {
  const response = await fetch(path, { cache: 'no-store' });
  if (response.status === 404) return null;
  if (!response.ok) throw new Error(await words(response));
  return response.json();
}

export async function change(run, verb) {
  const response = await fetch(`/v1/runs/${run}/${verb}`, { method: 'POST', headers: { 'x-fluvial-console': '1' } });
  if (!response.ok) throw new Error(await words(response));
}
