/* One round of the lease protocol, for spin: 3 sites, 2 aggregators (A, B), the coordinator (R), that crash, lose
 * sessions and move while the round is open. docs/design/exactly-once.md says what is modelled and what is not.
 *
 * One process picks any enabled step, again and again; a step is what one machine does with one event. Every fault has a
 * budget, so the graph of states has no cycle unless the protocol itself goes round (pan -l looks for that), and
 * wherever it ends the round must be committed and every submission resolved. No fairness is assumed.
 *
 * What is one step here though it takes time there, because nobody could tell the difference: a crash and the restart
 * (connecting again takes any time, and to be down is not to be connected); a site's training and its submission's way up
 * (that an opening was lost, or the update, is the same to its parent); the root's closing and its commit record.
 *
 * Mutations, each of which must fail: SKIP_FENCE, NO_DISJOINT, COUNT_ON_ACK, GUESS_OUTCOME, FORGET_MOVES (a restarted
 * coordinator expects the epochs of the attempt's record).  -DDEEP: A begins below B. */

#ifndef MOVES
#define MOVES 1     /* nodes that get another parent while the round is open */
#endif
#ifndef CRASHES
#define CRASHES 1   /* of an aggregator: all it had is gone */
#endif
#ifndef RESTARTS
#define RESTARTS 1  /* of the coordinator: a new term, the sum is gone, the journal is not */
#endif
#ifndef DROPS
#define DROPS 1     /* sessions lost; a site's is also the site's crash, whose submission is durable */
#endif
#ifndef WIPES
#define WIPES 0     /* crashes of a site that lose its disk: another incarnation, another digest */
#endif
#ifndef FAULTS
#define FAULTS 2    /* of the above together */
#endif
#ifndef DEADLINES
#define DEADLINES 0 /* of aggregators: a partial without who is still awaited */
#endif
#define ATTEMPTS 2  /* by the hard deadline; a restart of the coordinator begins another */
#define QUORUM 2

#define A 0
#define B 1
#define R 2
#define NONE 3
#define X(n, i) ((n) * 3 + (i))
#define BIT(i) (1 << (i))
#define FAULT(kind) (kind > 0 && faults > 0)
#define USE(kind) kind--; faults--
#define STEP(...) :: d_step { __VA_ARGS__; skip }

/* ---- the coordinator's journal ---------------------------------------------------------------------------------- */
byte lease_parent[3];  /* of each site */
byte lease_epoch[3];
byte agg_parent[2];    /* of each aggregator */
byte root_attempt;     /* the last recorded; it stands for the term too: both only grow, and no attempt has two terms */
bool committed;        /* the commit record is there, ... */
byte named;            /* ... whom it names, ... */
byte named_wiped;      /* ... and who of them with the digest of a second incarnation */

/* ---- a gather at each of A, B and R (core/round/gather.h) ---------------------------------------------------------- */
#define OUT 0      /* no participant here */
#define AWAITED 1
#define QUEUED 2   /* staged behind a partial on its way */
#define HELD 3     /* in the sum */
#define ABOVE 4    /* the parent holds it */
byte state[9];
byte epoch[9];     /* the lease epoch that an entry must have */
byte entry[9];     /* of who is queued or held: the epoch it came under, ... */
byte wiped[9];     /* ... the digest, ... */
byte arrival[9];   /* ... and everybody in the arrival that brought it */
byte sum[9];       /* how often the sum holds it: the arithmetic, apart from the names */

/* ---- sites ----------------------------------------------------------------------------------------------------------- */
#define NO_UPDATE 0
#define PENDING 1  /* a durable submission */
#define COUNTED 2
#define LATE 3
byte site[3];
byte digest[3];    /* 0, or 1 after the disk was lost */
byte session[3];   /* with whom */
byte update[9];    /* on its way from site i to node n: 2 * epoch + digest */

/* ---- aggregators ----------------------------------------------------------------------------------------------------- */
byte uplink[2];    /* session with whom */
byte attempt[2];   /* of the opening that it knows; 0: no round */
byte sequence[2];  /* of partials */
bool sent[2];      /* a partial is on its way, or was */
byte fly_to[2];    /* its partial on the wire: to whom, ... */
bool fly_cut[2];   /* ... whether its session is gone: it may still be read, or be lost; the receipt is lost */
byte fly_attempt[2], fly_sequence[2], fly_wiped[2];
byte fly_entry[6], fly_sum[6];

#define OPEN 1
#define RECEIPT 2
#define COMMIT 3
#define ROOM 4
chan down[2] = [ROOM] of { byte, byte, byte, byte };  /* kind; attempt or sequence; epochs or accepted; a set of sites */

/* ---- the root's run ---------------------------------------------------------------------------------------------------- */
bool published;
bool ended;

byte moves = MOVES, crashes = CRASHES, restarts = RESTARTS, drops = DROPS, wipes = WIPES, faults = FAULTS, deadlines = DEADLINES;

hidden byte k, m, e, w, z, q, c0, c1, c2, c3;

#define HAS(n, i) (state[X(n, i)] == HELD || state[X(n, i)] == QUEUED)
#define IN(n, i) (HAS(n, i) || state[X(n, i)] == ABOVE)
#define MASK(n, what) \
  ((state[X(n, 0)] == what) + (state[X(n, 1)] == what) * 2 + (state[X(n, 2)] == what) * 4)
#define IN_MASK(n) (IN(n, 0) + IN(n, 1) * 2 + IN(n, 2) * 4)
#define COUNT(mask) (((mask) & 1) + (((mask) >> 1) & 1) + (((mask) >> 2) & 1))
#define NAMED(i) (committed && (named & BIT(i)) && ((named_wiped >> (i)) & 1) == digest[i])
#define SPACE (len(down[A]) < ROOM && len(down[B]) < ROOM)
/* The child of the root that site i's leases lead through; R when the site is one itself. */
#define BRANCH(i) (lease_parent[i] == R -> R : (agg_parent[lease_parent[i]] == R -> lease_parent[i] : B))
#define PATH_UP(i) \
  (session[i] == R || \
   (session[i] != NONE && (uplink[session[i]] == R || (uplink[session[i]] == B && uplink[B] == R))))

/* What the sites believe is what the journal says. */
inline check_outcomes() {
  for (k : 0 .. 2) {
    assert(!committed || site[k] != COUNTED || NAMED(k));
    assert(site[k] != LATE || (committed && !NAMED(k)))
  }
}

inline forget(n, i) {
  state[X(n, i)] = OUT;
  epoch[X(n, i)] = 0;
  drop(n, i)
}

inline drop(n, i) {
  entry[X(n, i)] = 0;
  wiped[X(n, i)] = 0;
  arrival[X(n, i)] = 0;
  sum[X(n, i)] = 0
}

inline forget_round(a) {
  for (m : 0 .. 2) { forget(a, m) }
  attempt[a] = 0;
  sent[a] = false;
  sequence[a] = 0
}

#include "lease_machines.pml"

/* ---- faults ------------------------------------------------------------------------------------------------------------------ */
inline empty_down(a) {
  do
  :: len(down[a]) > 0 -> down[a] ? c0, c1, c2, c3
  :: else -> break
  od;
  c0 = 0; c1 = 0; c2 = 0; c3 = 0
}

inline lose_uplink(a) {
  uplink[a] = NONE;
  empty_down(a);
  fly_cut[a] = fly_to[a] != NONE
}

/* Of what a crashed node had read nothing is left, and nothing of what was on its way to it. */
inline lose_node(n) {
  for (k : 0 .. 2) {
    update[X(n, k)] = 0;
    forget(n, k);
    session[k] = (session[k] == n -> NONE : session[k])
  }
  for (k : 0 .. 1) {
    if
    :: uplink[k] == n -> lose_uplink(k)
    :: else
    fi;
    if
    :: fly_to[k] == n -> clear_flight(k)
    :: else
    fi
  }
}

inline crash_aggregator(a) {
  forget_round(a);
  lose_uplink(a);
  lose_node(a)
}

/* Crash and restart: the next attempt, whose epochs are the lease table's and not those of the attempt's record. */
inline restart_root() {
  lose_node(R);
  if
  :: committed -> published = true
  :: else ->
     root_attempt++;
     for (k : 0 .. 2) {
       state[X(R, k)] = AWAITED;
#ifdef FORGET_MOVES
       epoch[X(R, k)] = 1
#else
       epoch[X(R, k)] = lease_epoch[k]
#endif
     }
  fi
}

inline lease_moved(i) {
#ifndef SKIP_FENCE
  epoch[X(R, i)] = (state[X(R, i)] == AWAITED -> lease_epoch[i] : epoch[X(R, i)]);
#endif
  open_below(R)
}

/* ---- the end of the round -------------------------------------------------------------------------------------------------- */

/* After the record, what is still on its way can only be refused, so it is cut off here: that keeps the states few. */
inline commit() {
  assert(!committed);  /* never two commits of one round */
  committed = true;
  named = MASK(R, HELD);
  for (k : 0 .. 2) {
    assert(sum[X(R, k)] == (state[X(R, k)] == HELD));  /* the probe */
    named_wiped = named_wiped | (state[X(R, k)] == HELD -> wiped[X(R, k)] << k : 0)
  }
  check_outcomes();
  for (k : 0 .. 2) {
    forget(R, k);
    update[X(A, k)] = 0;
    update[X(B, k)] = 0;
    update[X(R, k)] = 0
  }
  for (k : 0 .. 1) {
    forget_round(k);
    clear_flight(k);
    empty_down(k)
  }
}

inline publish() {
  published = true;
  for (k : 0 .. 1) {
    if
    :: uplink[k] == R ->
       w = 0;
       for (m : 0 .. 2) {
         w = w | ((named & BIT(m)) && (session[m] == k || (k == B && session[m] == A && uplink[A] == B)) -> BIT(m) : 0)
       }
       down[k] ! COMMIT, 0, 0, w
    :: else
    fi
  }
}

/* ---- steps -------------------------------------------------------------------------------------------------------------------- */
#define SITE(i) \
  STEP(session[i] == NONE && site[i] <= PENDING -> session[i] = lease_parent[i]; open_site(session[i], i)) \
  STEP(committed && site[i] == PENDING && PATH_UP(i) -> site[i] = (NAMED(i) -> COUNTED : LATE); check_outcomes()) \
  STEP(FAULT(drops) && session[i] != NONE && site[i] <= PENDING -> USE(drops); session[i] = NONE) \
  STEP(FAULT(wipes) && site[i] == PENDING && digest[i] == 0 -> \
       USE(wipes); session[i] = NONE; site[i] = NO_UPDATE; digest[i] = 1) \
  ARRIVE(A, i) ARRIVE(B, i) ARRIVE(R, i)

/* The journal first, then the machine and the grant; or the coordinator crashes in between. */
#define MOVE(i, to) \
  STEP(moves > 0 && !committed && session[i] == NONE && lease_parent[i] != to && SPACE -> \
       moves--; lease_parent[i] = to; lease_epoch[i]++; lease_moved(i)) \
  STEP(moves > 0 && FAULT(restarts) && !committed && session[i] == NONE && lease_parent[i] != to -> \
       moves--; lease_parent[i] = to; lease_epoch[i]++; USE(restarts); restart_root())

/* Of a session that is gone, what was sent may be read or be lost. */
#define ARRIVE(n, i) \
  STEP(update[X(n, i)] != 0 -> deliver_update(n, i)) \
  STEP(update[X(n, i)] != 0 && session[i] != n -> update[X(n, i)] = 0)

#define AGGREGATOR(a) \
  STEP(uplink[a] == NONE && SPACE -> uplink[a] = agg_parent[a]; open_child(a)) \
  STEP(len(down[a]) > 0 && (a == A || uplink[A] != B || len(down[A]) < ROOM) -> \
       down[a] ? c0, c1, c2, c3; \
       if \
       :: c0 == OPEN -> hear_opening(a, c1, c2, c3) \
       :: c0 == RECEIPT -> hear_receipt(a, c1, c2, c3) \
       :: c0 == COMMIT -> hear_commit(a, c3) \
       fi; \
       c0 = 0; c1 = 0; c2 = 0; c3 = 0) \
  STEP(attempt[a] != 0 && !sent[a] && MASK(a, AWAITED) == 0 && MASK(a, HELD) != 0 -> send(a)) \
  STEP(deadlines > 0 && attempt[a] != 0 && !sent[a] && MASK(a, AWAITED) != 0 && MASK(a, HELD) != 0 -> \
       deadlines--; send(a)) \
  STEP(fly_to[a] == R && len(down[a]) < ROOM -> deliver_partial(a, R)) \
  STEP(fly_cut[a] -> clear_flight(a)) \
  STEP(FAULT(crashes) -> USE(crashes); crash_aggregator(a)) \
  STEP(FAULT(drops) && uplink[a] != NONE -> USE(drops); lose_uplink(a))

inline start() {
  for (k : 0 .. 2) {
    lease_parent[k] = (k == 2 -> B : A);
    lease_epoch[k] = 1;
    session[k] = lease_parent[k];
    state[X(R, k)] = AWAITED;
    epoch[X(R, k)] = 1
  }
  for (k : 0 .. 1) {
    agg_parent[k] = R;
    fly_to[k] = NONE
  }
#ifdef DEEP
  agg_parent[A] = B;
#endif
  uplink[A] = agg_parent[A];
  uplink[B] = R;
  root_attempt = 1;
  open_below(R)
}

active proctype federation() {
  d_step { start(); skip };
  do
  SITE(0)
  SITE(1)
  SITE(2)
  MOVE(0, A) MOVE(0, B) MOVE(0, R)  /* sites 0 and 1 begin alike: with one move it need not be site 1's */
  MOVE(2, A) MOVE(2, B) MOVE(2, R)
  AGGREGATOR(A)
  AGGREGATOR(B)
#ifdef DEEP
  STEP(fly_to[A] == B && len(down[A]) < ROOM -> deliver_partial(A, B))
  STEP(moves > 0 && !committed && uplink[A] == NONE && agg_parent[A] == B && SPACE ->
       moves--; agg_parent[A] = R; open_below(R))
#endif
  /* The hard deadline without quorum; and from quorum on the soft deadline, or all are in. */
  STEP(!committed && root_attempt < ATTEMPTS && COUNT(MASK(R, HELD)) < QUORUM && SPACE -> root_attempt++; open_below(R))
  STEP(!committed && COUNT(MASK(R, HELD)) >= QUORUM -> commit())
  STEP(committed && !published && SPACE -> publish())
  STEP(FAULT(restarts) -> USE(restarts); restart_root())
  :: else -> break
  od;
  skip;
  d_step {
    assert(published);                               /* once the faults have stopped the round is committed, ... */
    for (k : 0 .. 2) { assert(site[k] != PENDING) }  /* ... and nobody is left without an outcome */
    check_outcomes();
    skip
  };
progress: /* it may stay here for ever, and nowhere else */
  do
  :: ended = !ended
  od
}
