// Asks before a run is changed: <dialog>, so that the keyboard, Escape and a screen reader find what they expect.

const WORDS = {
  pause: ['Pause', 'No further round is opened; the open one closes first. It can be resumed.'],
  resume: ['Resume', 'The run goes on with its next round.'],
  stop: ['Stop', 'The run ends for good. Its last model stays and may be continued by another run.'],
};

const place = (id) => document.getElementById(id);
const VERBS = { pause: 'Pausing', resume: 'Resuming', stop: 'Stopping' };

// `act` is called when the person says yes; what it throws is shown, and the dialog stays.
export function ask(verb, run, name, act) {
  const dialog = place('confirm');
  const yes = place('confirm-yes');
  place('confirm-title').textContent = `${WORDS[verb][0]} run ${run}${name ? ` (${name})` : ''}?`;
  place('confirm-text').textContent = WORDS[verb][1];
  place('confirm-failure').textContent = '';
  yes.textContent = `${WORDS[verb][0]} the run`;
  yes.disabled = false;
  place('confirm-no').onclick = () => dialog.close();
  yes.onclick = async () => {
    yes.disabled = true;
    yes.textContent = `${VERBS[verb]} …`;
    try {
      await act();
      dialog.close();
    } catch (error) {
      place('confirm-failure').textContent = error.message;
      yes.textContent = `${WORDS[verb][0]} the run`;
      yes.disabled = false;
    }
  };
  dialog.showModal();
  place('confirm-no').focus();
}
