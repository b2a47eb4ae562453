/*
 * Late is next (docs/design/late.md): a site's updates that may miss their round, as spin explores them. An update is of
 * the round that it was trained for and may enter the next one. Rounds are committed, each at any moment: somebody else
 * makes the quorum. Once an update has its outcome the site makes another, for the round that it knows to be open.
 *
 * What may happen at any time, FAULTS times in all: the session breaks, with all that is on its way in either direction
 * but perhaps for answers, which are made beside it and may overtake it, so that an answer may be older than the opening
 * that it follows; the coordinator restarts with nothing but its journal; the site restarts with nothing but its store; a
 * parent brings once more what it has of the site, or says that it refuses an update of the site. An update that arrives
 * may be refused as well, so that the site drops it. A parent may claim another base than the site signed.
 *
 * With WINDOWS (docs/design/windows.md) a round goes over into the next: an update that was sent into the round before the
 * open one is taken, and while it waits the site trains for the open round; what that gives is encoded after the outcome.
 *
 * Mutations: MARK_LE, TRUST_SENDER, FORGET_ARRIVAL, NO_MARK, NO_REFUSAL_MARK, REFUSED_BY_ROUND, BELIEVE_REFUSAL, GUESS_LATE. Each
 * must have a counterexample.
 */
#ifndef FAULTS
#define FAULTS 2
#endif
#define ROUNDS 3
#define MAX 1 /* staleness_max */

mtype = { offer, commit, update, ask, none, pending, counted, refused, late };

/* An update is named by its own round. 0: none. */
chan down = [8] of { mtype, byte, byte, byte };  /* offer(round), commit(round, whom it counts, whom it refuses) */
chan up = [4] of { mtype, byte, byte, byte };    /* update(round that it enters, round it is said to be of, is of), ask */
chan answers = [2] of { mtype, byte };

/* the coordinator's journal */
byte committed = 0;
byte mark = 0;               /* the newest own round that is decided */
byte counted_in[ROUNDS + 1]; /* by own round */
byte refused_in[ROUNDS + 1];
byte refuses[ROUNDS + 1];    /* by the round that refused: the own round that the refusal says */
/* the coordinator's memory */
byte in_sum = 0;
byte said = 0;
byte refusing = 0;
/* the site's store */
byte own = 0; /* what it trains, or has sent */
bool encoded = false;
mtype outcome[ROUNDS + 1] = none;
/* the site's memory */
byte beside = 0; /* what it trains while its update waits */
byte offered = 0;
byte sent_into = 0;
bool site_is_done = false;
/* what a parent has of the site */
bool captured[ROUNDS + 1];
byte faults = 0;

#define OPEN (committed + 1)
#ifdef TRUST_SENDER
#define IS_SIGNED true
#else
#define IS_SIGNED (says == is) /* the signature covers the round and its base */
#endif
#ifdef NO_MARK
#define IS_NEW true
#else
#ifdef MARK_LE
#define IS_NEW (says >= mark)
#else
#define IS_NEW (says > mark)
#endif
#endif
#ifdef WINDOWS
#define IS_TAKEN (into == OPEN || into == committed)
#else
#define IS_TAKEN (into == OPEN)
#endif
#ifdef FORGET_ARRIVAL
#define LAST_TO_ENTER about
#else
#define LAST_TO_ENTER (about + MAX)
#endif
#ifdef REFUSED_BY_ROUND
#define IS_REFUSED (refuses[about] != 0 || (about < ROUNDS && refuses[about + 1] != 0))
#else
#define IS_REFUSED (refuses[about] == about || (about < ROUNDS && refuses[about + 1] == about))
#endif

inline flush(channel) {
  do
  :: nempty(channel) -> channel?_, _, _, _
  :: empty(channel) -> break
  od
}

inline connect() {
  flush(down);
  flush(up);
  if
  :: nempty(answers) -> answers?_, _
  :: true
  fi;
  if
  :: committed < ROUNDS -> down!offer(OPEN, 0, 0)
  :: else
  fi
}

inline send(round) {
  captured[own] = true;
  sent_into = round;
  if
  :: nfull(up) -> up!update(round, own, own)
  :: nfull(up) -> up!update(round, round, own) /* a parent says that it is fresh */
  :: full(up)
  fi
}

inline enquire() {
  if
  :: nfull(up) -> up!ask(own, 0, 0)
  :: full(up)
  fi
}

inline begin() {
  own = offered;
  encoded = false;
  sent_into = 0
}

/* The round that it was sent into is over if it decided; it trains for no other than a newer one. */
inline decide(what) {
  assert(outcome[own] == none);
  assert(what != counted || counted_in[own] != 0);
  assert(what != late || counted_in[own] == 0);
  assert(what != refused || (counted_in[own] == 0 && refused_in[own] != 0));
  outcome[own] = what;
  if
  :: beside != 0 ->
    own = beside;
    beside = 0;
    encoded = false;
    sent_into = 0
  :: beside == 0 && offered > own && offered != sent_into -> begin()
  :: else ->
    own = 0;
    encoded = false;
    sent_into = 0
  fi
}

active proctype Site() {
  byte round;
  byte named;
  byte turned;
  byte which;
  mtype answer;
  do
  :: atomic { nempty(down) ->
      if
      :: down?offer(round, _, _) ->
        offered = round;
#ifdef WINDOWS
        if
        :: own != 0 && encoded && round > own && beside == 0 -> beside = round
        :: else
        fi;
#endif
        if
        :: own == 0 && outcome[round] == none -> begin()
        :: own == 0 && outcome[round] != none
        :: own != 0 && !encoded
        :: own != 0 && encoded && round == own -> send(round)
        :: own != 0 && encoded && round != own -> enquire()
        fi
      :: down?commit(round, named, turned) ->
        if
        :: offered <= round -> offered = 0
        :: else
        fi;
        if
        :: !encoded
        :: encoded && named == own -> decide(counted)
#ifdef BELIEVE_REFUSAL
        :: encoded && named != own && turned == own -> decide(refused)
        :: encoded && named != own && turned != own -> enquire()
#else
        :: encoded && named != own && turned == own && round == own -> decide(refused)
#ifdef GUESS_LATE
        :: encoded && named != own && !(turned == own && round == own) -> decide(late)
#else
        :: encoded && named != own && !(turned == own && round == own) -> enquire()
#endif
#endif
        fi
      fi
    }
  :: atomic { nempty(answers) ->
      answers?answer, which;
      if
      :: !encoded || which != own
      :: encoded && which == own && answer == pending && offered > own && offered - own <= MAX -> send(offered)
      :: encoded && which == own && answer == pending && !(offered > own && offered - own <= MAX)
      :: encoded && which == own && answer != pending -> decide(answer)
      fi
    }
  /* its training is over: it is durable, and nobody has it */
  :: atomic { own != 0 && !encoded ->
      encoded = true;
      if
      :: offered < own
      :: offered >= own && offered - own <= MAX -> send(offered)
      :: offered >= own && offered - own > MAX -> decide(late)
      fi
    }
  /* from time to time */
  :: (encoded && len(up) == 0 && len(answers) == 0 && len(down) == 0 && committed == ROUNDS) -> enquire()
  :: atomic { faults < FAULTS && committed < ROUNDS ->
      faults++;
      offered = 0;
      beside = 0;
      connect();
      if
      :: encoded -> enquire()
      :: !encoded -> own = 0
      fi
    }
  :: (own == 0 && len(down) == 0 && len(up) == 0 && len(answers) == 0 && committed == ROUNDS) -> break
  od;
  site_is_done = true
}

active proctype Coordinator() {
  byte into;
  byte says;
  byte is;
  byte about;
  down!offer(OPEN, 0, 0);
  do
  :: atomic { nempty(up) ->
      if
      :: up?update(into, says, is) ->
        if
        :: (IS_TAKEN && committed < ROUNDS && in_sum == 0 && refusing == 0 && says <= into && OPEN - says <= MAX &&
            IS_SIGNED && IS_NEW) ->
          if
          :: in_sum = is; said = says
          :: refusing = says /* it is damaged */
          fi
        :: else
        fi
      :: up?ask(about, _, _) ->
        if
        :: (len(answers) == 2) -> skip
        :: (len(answers) < 2 && counted_in[about] != 0) -> answers!counted(about)
        :: (len(answers) < 2 && counted_in[about] == 0 && IS_REFUSED) -> answers!refused(about)
        :: (len(answers) < 2 && counted_in[about] == 0 && !IS_REFUSED) ->
          if
          :: (committed >= about && (mark >= about || committed >= LAST_TO_ENTER || committed == ROUNDS)) ->
            answers!late(about)
          :: else -> answers!pending(about)
          fi
        fi
      fi
    }
  :: atomic { committed < ROUNDS && len(down) <= 6 ->
      committed++;
      if
      :: in_sum != 0 ->
        assert(counted_in[in_sum] == 0);
        assert(said == in_sum);
        assert(outcome[in_sum] == none);
        counted_in[in_sum] = committed;
        if
        :: said > mark -> mark = said
        :: else
        fi
      :: else
      fi;
      if
      :: refusing != 0 ->
        refuses[committed] = refusing;
        refused_in[refusing] = committed;
#ifndef NO_REFUSAL_MARK
        if
        :: refusing > mark -> mark = refusing
        :: else
        fi
#endif
      :: else
      fi;
      down!commit(committed, in_sum, refusing);
      in_sum = 0;
      said = 0;
      refusing = 0;
      if
      :: committed < ROUNDS -> down!offer(OPEN, 0, 0)
      :: else
      fi
    }
  :: atomic { faults < FAULTS && committed < ROUNDS ->
      faults++;
      in_sum = 0;
      said = 0;
      refusing = 0;
      connect();
      if
      :: encoded -> enquire()
      :: else
      fi
    }
  /* a parent lies */
  :: atomic { faults < FAULTS && committed < ROUNDS && in_sum == 0 && refusing == 0 ->
      faults++;
      if
      :: refusing = OPEN
      :: committed > 0 -> refusing = committed
      :: (committed > 0 && captured[committed] && nfull(up)) -> up!update(OPEN, committed, committed)
      :: (captured[OPEN] && nfull(up)) -> up!update(OPEN, OPEN, OPEN)
      fi
    }
  :: (committed == ROUNDS && site_is_done && len(up) == 0) -> break
  od
}
