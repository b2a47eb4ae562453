/*
 * A round with two passes (docs/design/phases.md) as spin explores it: what one site gives to it, and what it then
 * believes. The others make every quorum: a pass closes, the round is committed, an attempt ends, each at any moment.
 * A mean is named by its digest, and is of one attempt: what is hashed begins with that.
 *
 * What may happen at any time, FAULTS times in all: the session breaks, with all that is on its way in either direction;
 * the coordinator restarts with nothing but its journal, and begins the next attempt; the site restarts with nothing but
 * its store; a parent plays an opening again that the coordinator signed before, brings again what it has of the site,
 * of either pass and from either mean, says of it that it fits the open pass, or passes a commit on that does not know
 * the site.
 *
 * Mutations: SAME_MEAN, TRUST_MEAN, FORGET_ATTEMPT, KEEP_SUM, COUNT_FIRST, GUESS_LATE. Each must have a counterexample. Without
 * looking at the pass itself nothing is found: the first pass has no mean, and so the mean tells them apart.
 */
#ifndef FAULTS
#define FAULTS 3
#endif
#define ATTEMPTS 3
#ifdef SAME_MEAN
#define MEAN (attempt % 2 + 1) /* the first and the third attempt have the same values, and the same digest */
#else
#define MEAN attempt
#endif

mtype = { offer, commit, update, ask, counted, late };

chan down = [6] of { mtype, byte, byte, byte }; /* offer(attempt, pass, mean), commit(what counts) */
chan up = [4] of { mtype, byte, byte, byte };   /* update(pass and mean that it is said to be of, mean that it is of) */
chan answers = [2] of { mtype, byte };          /* about what was made of this mean */

/* the coordinator's journal */
byte attempt = 1;
bool is_committed = false;
byte counts = 0;           /* what counts of the site: the mean that it is from, + 1; 0: nothing */
bool counts_first = false; /* the site is in the first pass of the attempt that was committed */
/* the coordinator's memory */
byte pass = 0;
byte mean = 0;
bool in_first = false;
byte in_second = 0; /* what the sum holds of the site, as `counts` says it */
/* the site's store */
/* p and what the first pass sends: durable before the model begins */
byte made_from = 0;    /* the second pass, of this mean; 0: not made */
byte made_for = 0;     /* and this attempt */
bool is_done = false;
/* the site's memory */
byte newest = 0; /* opening: 2 * attempt + pass */
/* what parents have */
byte told[2 * ATTEMPTS + 2];  /* openings: their means + 1; 0: none */
bool sent[ATTEMPTS + 1];      /* by mean; 0: the first pass */
byte faults = 0;

#define NAME(a, p) (2 * (a) + (p))
#ifdef TRUST_MEAN
#define FITS (says == mean)
#else
#define FITS (says == mean && says == is) /* the site's signature names the mean */
#endif
#ifdef FORGET_ATTEMPT
#define IS_LATER true
#else
#define IS_LATER (number > made_for)
#endif

inline flush(channel) {
  do
  :: nempty(channel) -> channel?_, _, _, _
  :: empty(channel) -> break
  od
}

/* The open pass to the site, where it takes part. */
inline open() {
  if
  :: (!is_committed && (pass == 0 || in_first)) ->
    told[NAME(attempt, pass)] = mean + 1;
    if
    :: nfull(down) -> down!offer(attempt, pass, mean)
    :: full(down)
    fi
  :: else
  fi
}

inline connect() {
  flush(down);
  flush(up);
  if
  :: nempty(answers) -> answers?_, _
  :: true
  fi;
  open()
}

inline next_attempt() {
  attempt++;
  pass = 0;
  mean = 0;
  in_first = false;
#ifndef KEEP_SUM
  in_second = 0;
#endif
  open()
}

inline send(of_pass, of_mean) {
  sent[of_mean] = true;
  if
  :: nfull(up) -> up!update(of_pass, of_mean, of_mean)
  :: full(up)
  fi
}

inline enquire() {
  if
  :: nfull(up) -> up!ask(made_from, 0, 0)
  :: full(up)
  fi
}

inline decide(what) {
  assert(is_committed);
  assert(what != counted || (made_from != 0 && counts == made_from + 1)); /* its residual is what that leaves */
  assert(what != late || counts == 0);                                /* else it counts, and comes again */
  is_done = true
}

active proctype Site() {
  byte number;
  byte of_pass;
  byte of_mean;
  mtype answer;
  do
  :: atomic { nempty(down) ->
      if
      :: down?offer(number, of_pass, of_mean) ->
        if
        :: (is_done || NAME(number, of_pass) < newest)
        :: (!is_done && NAME(number, of_pass) >= newest) ->
          newest = NAME(number, of_pass);
          if
          :: of_pass == 0 -> send(0, 0)
          :: (of_pass == 1 && of_mean == made_from) -> send(1, of_mean)
          :: (of_pass == 1 && of_mean != made_from && IS_LATER) ->
            made_from = of_mean;
            made_for = number;
            send(1, of_mean)
          :: (of_pass == 1 && of_mean != made_from && !(IS_LATER))
          fi
        fi
      :: down?commit(of_mean, _, _) ->
        if
        :: is_done
        :: (!is_done && made_from != 0 && of_mean == made_from + 1) -> decide(counted)
#ifdef GUESS_LATE
        :: (!is_done && !(made_from != 0 && of_mean == made_from + 1)) -> decide(late)
#else
        :: (!is_done && !(made_from != 0 && of_mean == made_from + 1)) -> enquire()
#endif
        fi
      fi
    }
  :: atomic { nempty(answers) ->
      answers?answer, of_mean;
      if
      :: (is_done || of_mean != made_from)
      :: (!is_done && of_mean == made_from) -> decide(answer)
      fi
    }
  :: (!is_done && is_committed && len(up) == 0 && len(answers) == 0 && len(down) == 0) -> enquire()
  :: atomic { faults < FAULTS && !is_done ->
      faults++;
      newest = 0;
      connect()
    }
  :: (is_done && len(down) == 0 && len(answers) == 0) -> break
  od
}

active proctype Coordinator() {
  byte which;
  byte says;
  byte is;
  open();
  do
  :: atomic { nempty(up) ->
      if
      :: up?update(which, says, is) ->
        if
        :: (!is_committed && which == pass && FITS && pass == 0) ->
          assert(is == 0);
          in_first = true
        :: (!is_committed && which == pass && FITS && pass == 1 && in_first && in_second == 0) -> in_second = is + 1
        :: else
        fi
      :: up?ask(is, _, _) ->
        if
        :: (!is_committed || len(answers) == 2)
#ifdef COUNT_FIRST
        :: (is_committed && len(answers) < 2 && counts_first) -> answers!counted(is)
        :: (is_committed && len(answers) < 2 && !counts_first) -> answers!late(is)
#else
        :: (is_committed && len(answers) < 2 && is != 0 && counts == is + 1) -> answers!counted(is)
        :: (is_committed && len(answers) < 2 && !(is != 0 && counts == is + 1)) -> answers!late(is)
#endif
        fi
      fi
    }
  /* the first pass closes: the mean goes down */
  :: atomic { !is_committed && pass == 0 ->
      pass = 1;
      mean = MEAN;
      open()
    }
  :: atomic { !is_committed && pass == 1 && nfull(down) ->
      assert(in_second == 0 || in_second == mean + 1); /* what counts is from this attempt's mean */
      is_committed = true;
      counts = in_second;
      counts_first = in_first;
      down!commit(counts, 0, 0)
    }
  :: atomic { !is_committed && attempt < ATTEMPTS -> next_attempt() }
  :: atomic { !is_committed && attempt < ATTEMPTS && faults < FAULTS ->
      faults++;
      flush(down);
      flush(up);
      in_second = 0;
      next_attempt()
    }
  /* a parent lies, or lags */
  :: atomic { faults < FAULTS && !is_done ->
      faults++;
      if
      :: (nfull(down) && is_committed) -> down!commit(0, 0, 0)
      :: (nfull(up) && sent[0]) -> up!update(0, 0, 0)
      :: (nfull(up) && sent[0]) -> up!update(pass, mean, 0)
      :: (nfull(up) && sent[1]) -> up!update(1, 1, 1)
      :: (nfull(up) && sent[1]) -> up!update(pass, mean, 1)
      :: (nfull(up) && sent[2]) -> up!update(1, 2, 2)
      :: (nfull(up) && sent[2]) -> up!update(pass, mean, 2)
      :: (nfull(up) && sent[3]) -> up!update(1, 3, 3)
      :: (nfull(down) && told[NAME(1, 1)] != 0) -> down!offer(1, 1, told[NAME(1, 1)] - 1)
      :: (nfull(down) && told[NAME(2, 1)] != 0) -> down!offer(2, 1, told[NAME(2, 1)] - 1)
      :: (nfull(down) && told[NAME(2, 0)] != 0) -> down!offer(2, 0, 0)
      :: true
      fi
    }
  :: (is_committed && is_done && len(up) == 0) -> break
  od
}
