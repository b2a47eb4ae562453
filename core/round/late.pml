/*
 * Late is next (docs/design/late.md): one update that may miss its round, as spin explores it. The site's submission is of
 * round 1 and may enter round 2. Three rounds are committed, each at any moment: somebody else makes the quorum.
 *
 * What may happen at any time, FAULTS times in all: the session breaks, with all that is on its way in either direction
 * but perhaps for answers, which are made beside it and may overtake it; the coordinator restarts with nothing but its
 * journal; the site restarts with nothing but its store. A parent may claim another base than the site signed.
 *
 * Mutations: TRUST_SENDER, FORGET_ARRIVAL, NO_MARK, GUESS_LATE. Each must have a counterexample.
 */
#ifndef FAULTS
#define FAULTS 2
#endif
#define ROUNDS 3
#define MAX 1 /* staleness_max */
#define OWN 1 /* the round of the submission */

mtype = { offer, commit, update, ask, none, pending, counted, late };

chan down = [8] of { mtype, byte, bool };  /* offer(round), commit(round, whether it names the submission) */
chan up = [4] of { mtype, byte, byte };    /* update(round that it enters, round that its parent says it is of), ask */
chan answers = [2] of { mtype };

/* the coordinator's journal */
byte committed = 0;
byte counted_in = 0; /* the mark: the round that the submission counted in */
/* what is true of it, and nobody knows */
byte times_counted = 0;
/* the coordinator's memory */
bool in_sum = false;
byte staleness_in_sum = 0;
/* the site's store */
bool encoded = false;
mtype outcome = none;
/* the site's memory */
byte offered = 0;
byte faults = 0;
bool site_is_done = false;

#define OPEN (committed + 1)
#ifdef TRUST_SENDER
#define IS_SIGNED true
#else
#define IS_SIGNED (says == OWN) /* the signature covers the round and its base */
#endif
#ifdef NO_MARK
#define IS_NEW true
#else
#define IS_NEW (counted_in == 0)
#endif
#ifdef FORGET_ARRIVAL
#define LAST_TO_ENTER OWN
#else
#define LAST_TO_ENTER (OWN + MAX)
#endif

inline flush(channel) {
  do
  :: nempty(channel) -> channel?_, _, _
  :: empty(channel) -> break
  od
}

inline connect() {
  flush(down);
  flush(up);
  if
  :: nempty(answers) -> answers?_
  :: true
  fi;
  if
  :: committed < ROUNDS -> down!offer(OPEN, false)
  :: else
  fi
}

inline send(round) {
  if
  :: nfull(up) -> up!update(round, OWN)
  :: nfull(up) -> up!update(round, round) /* a parent says that it is fresh */
  :: full(up)
  fi
}

inline enquire() {
  if
  :: nfull(up) -> up!ask(0, 0)
  :: full(up)
  fi
}

inline decide(what) {
  outcome = what;
  assert(what != counted || counted_in != 0);
  assert(what != late || counted_in == 0)
}

active proctype Site() {
  byte round;
  bool named;
  mtype answer;
  do
  :: outcome != none -> break
  :: (outcome == none && len(down) > 0) -> atomic {
      if
      :: down?offer(round, named) ->
        offered = round;
        if
        :: !encoded
        :: encoded && round == OWN -> send(round)
        :: encoded && round != OWN -> enquire()
        fi
      :: down?commit(round, named) ->
        if
        :: !encoded
        :: encoded && named -> decide(counted)
#ifdef GUESS_LATE
        :: encoded && !named -> decide(late)
#else
        :: encoded && !named -> enquire()
#endif
        fi
      fi
    }
  :: (outcome == none && len(answers) > 0) -> atomic {
      answers?answer;
      if
      :: answer == pending && offered > OWN && offered - OWN <= MAX -> send(offered)
      :: answer == pending && !(offered > OWN && offered - OWN <= MAX)
      :: answer != pending -> decide(answer)
      fi
    }
  /* its training is over: it is durable, and nobody has it */
  :: outcome == none && !encoded && offered != 0 -> atomic {
      encoded = true;
      if
      :: offered - OWN <= MAX -> send(offered)
      :: offered - OWN > MAX -> decide(late)
      fi
    }
  /* from time to time */
  :: (outcome == none && encoded && len(up) == 0 && len(answers) == 0 && len(down) == 0 && committed == ROUNDS) ->
    enquire()
  :: outcome == none && faults < FAULTS -> atomic {
      faults++;
      offered = 0;
      connect();
      if
      :: encoded -> enquire()
      :: else
      fi
    }
  /* it trains for no round that it knows of: the run is over */
  :: (outcome == none && !encoded && offered == 0 && len(down) == 0 && committed == ROUNDS) -> break
  od;
  site_is_done = true
}

active proctype Coordinator() {
  byte into;
  byte says;
  down!offer(OPEN, false);
  do
  :: nempty(up) -> atomic {
      if
      :: up?update(into, says) ->
        if
        :: (into == OPEN && committed < ROUNDS && !in_sum && into - OWN <= MAX && IS_SIGNED && IS_NEW) ->
          in_sum = true;
          staleness_in_sum = into - says
        :: else
        fi
      :: up?ask(_, _) ->
        if
        :: (len(answers) == 2) -> skip
        :: else ->
          if
          :: (counted_in != 0) -> answers!counted
          :: (counted_in == 0 && committed >= LAST_TO_ENTER) -> answers!late
          :: (counted_in == 0 && committed < LAST_TO_ENTER) -> answers!pending
          fi
        fi
      fi
    }
  :: committed < ROUNDS && len(down) <= 6 -> atomic {
      committed++;
      if
      :: in_sum ->
        times_counted++;
        assert(times_counted == 1);
        assert(staleness_in_sum == committed - OWN);
        assert(outcome != late);
        counted_in = committed;
        down!commit(committed, true)
      :: else -> down!commit(committed, false)
      fi;
      in_sum = false;
      if
      :: committed < ROUNDS -> down!offer(OPEN, false)
      :: else
      fi
    }
  :: faults < FAULTS && committed < ROUNDS -> atomic {
      faults++;
      in_sum = false;
      connect();
      if
      :: encoded && outcome == none -> enquire()
      :: else
      fi
    }
  :: (committed == ROUNDS && site_is_done) -> break
  od
}
