/* What the machines do with what they hear: the part of lease.pml that follows core/round/gather.h,
 * aggregator/logic/region_machine.h and edge/logic/site_machine.h. */

/* ---- openings, downwards ------------------------------------------------------------------------------------------------ */

/* A site that is not counted sends what it has, or trains and then sends. */
inline open_site(n, i) {
  if
  :: session[i] == n && state[X(n, i)] == AWAITED && site[i] <= PENDING ->
     site[i] = PENDING;
     update[X(n, i)] = 2 * epoch[X(n, i)] + digest[i]
  :: else
  fi
}

inline open_child(a) {  /* the root, or B when A is below it */
  if
  :: uplink[a] == R && !committed ->
     e = (BRANCH(0) == a -> epoch[X(R, 0)] : 0) + (BRANCH(1) == a -> epoch[X(R, 1)] * 4 : 0) +
         (BRANCH(2) == a -> epoch[X(R, 2)] * 16 : 0);
     down[a] ! OPEN, root_attempt, e, IN_MASK(R)
  :: uplink[a] == B && attempt[B] != 0 ->
     e = (lease_parent[0] == A -> epoch[X(B, 0)] : 0) + (lease_parent[1] == A -> epoch[X(B, 1)] * 4 : 0) +
         (lease_parent[2] == A -> epoch[X(B, 2)] * 16 : 0);
     down[a] ! OPEN, attempt[B], e, IN_MASK(B)
  :: else
  fi
}

inline open_below(n) {
  for (m : 0 .. 2) { open_site(n, m) }
  if
  :: uplink[A] == n -> open_child(A)
  :: else
  fi;
  if
  :: uplink[B] == n -> open_child(B)
  :: else
  fi
}

/* ---- the aggregator's machine (aggregator/logic/region_machine.h) ------------------------------------------------------- */

/* Its sum again, from the retained arrivals that have nobody of `without` in them. Whoever came with one of those and is
 * not in it himself is asked again. */
inline reseal(a, without) {
  sent[a] = false;
  for (m : 0 .. 2) {
    if
    :: HAS(a, m) && (arrival[X(a, m)] & (without)) ->
       state[X(a, m)] = ((without) & BIT(m) -> ABOVE : AWAITED);
       drop(a, m)
    :: HAS(a, m) && !(arrival[X(a, m)] & (without)) ->
       state[X(a, m)] = HELD;
       sum[X(a, m)] = 1
    :: else
    fi
  }
}

inline accepted(a) {
  sent[a] = false;
  for (m : 0 .. 2) {
    if
    :: state[X(a, m)] == HELD -> state[X(a, m)] = ABOVE; drop(a, m)
    :: state[X(a, m)] == QUEUED -> state[X(a, m)] = HELD; sum[X(a, m)] = 1
    :: else
    fi
  }
}

inline clear_flight(a) {
  fly_to[a] = NONE;
  fly_cut[a] = false;
  fly_attempt[a] = 0;
  fly_sequence[a] = 0;
  fly_wiped[a] = 0;
  for (m : 0 .. 2) {
    fly_entry[X(a, m)] = 0;
    fly_sum[X(a, m)] = 0
  }
}

inline send(a) {
  sent[a] = true;
  sequence[a]++;
  clear_flight(a);
  if
  :: uplink[a] != NONE ->
     fly_to[a] = uplink[a];
     fly_attempt[a] = attempt[a];
     fly_sequence[a] = sequence[a];
     for (m : 0 .. 2) {
       if
       :: state[X(a, m)] == HELD ->
          fly_entry[X(a, m)] = entry[X(a, m)];
          fly_wiped[a] = fly_wiped[a] | (wiped[X(a, m)] << m)
       :: else
       fi;
       fly_sum[X(a, m)] = sum[X(a, m)]
     }
  :: else
  fi
}

inline hear_opening(a, at, epochs, counted) {
  attempt[a] = at;
  w = 0;  /* who must go from what it has: counted above, of another lease, or below it no more */
  for (m : 0 .. 2) {
    e = ((epochs) >> (2 * m)) & 3;
    epoch[X(a, m)] = e;
#ifdef SKIP_FENCE
    w = w | (HAS(a, m) && ((counted) & BIT(m)) -> BIT(m) : 0)
#else
    w = w | (HAS(a, m) && (e == 0 || ((counted) & BIT(m)) || entry[X(a, m)] != e) -> BIT(m) : 0)
#endif
  }
  z = MASK(a, HELD);
  if
  :: sent[a] && z != 0 && (z & (counted)) == z ->  /* the receipt was lost, not the partial */
     accepted(a);
     w = w & ~z
  :: else
  fi;
  if
  :: w != 0 -> reseal(a, w)
  :: else
  fi;
  for (m : 0 .. 2) {
    if
    :: HAS(a, m)
    :: !HAS(a, m) && epoch[X(a, m)] == 0 -> state[X(a, m)] = OUT
    :: !HAS(a, m) && epoch[X(a, m)] != 0 -> state[X(a, m)] = ((counted) & BIT(m) -> ABOVE : AWAITED)
    fi
  }
  open_below(a);
  if
  :: sent[a] -> send(a)  /* it was lost on its way, or the attempt is a new one */
  :: else
  fi
}

inline hear_receipt(a, number, ok, without) {
  if
  :: sent[a] && number == sequence[a] && ok ->
     accepted(a);
     sequence[a] = 0  /* no older receipt can follow: to number anew keeps the states few */
  :: sent[a] && number == sequence[a] && !ok && (without) != 0 ->
     reseal(a, without);
     sequence[a] = 0;
     open_below(a)
  :: else  /* stale: an opening or the commit follows */
  fi
}

/* `who` are those whom its parent named to it: who was below it then. A site that is not named asks. */
inline hear_commit(a, who) {
  for (m : 0 .. 2) {
    if
    :: session[m] == a && site[m] == PENDING && ((who) & BIT(m)) && NAMED(m) -> site[m] = COUNTED
#ifdef GUESS_OUTCOME
    :: session[m] == a && site[m] == PENDING && !((who) & BIT(m)) -> site[m] = LATE
#endif
    :: else
    fi
  }
  if
  :: a == B && uplink[A] == B -> down[A] ! COMMIT, 0, 0, who
  :: else
  fi;
  check_outcomes()
}

/* ---- what arrives at a gather -------------------------------------------------------------------------------------------- */
#ifdef SKIP_FENCE
#define FRESH(n, i, e) true
#define BELOW(n, i, a) true
#else
#define FRESH(n, i, e) ((e) == epoch[X(n, i)])
#define BELOW(n, i, a) (n == B || BRANCH(i) == a)
#endif
#ifdef NO_DISJOINT
#define FREE(n, i) (n == R || !IN(n, i))
#else
#define FREE(n, i) (!IN(n, i))
#endif

inline take(n, i, e, d, all, times) {
  if
  :: n == R ->
     assert((e) == lease_epoch[i]);  /* whoever has moved counts under the new lease alone */
     sum[X(n, i)] = sum[X(n, i)] + (times);
     assert(sum[X(n, i)] == 1);      /* never twice */
     state[X(n, i)] = HELD
  :: else ->
     state[X(n, i)] = (sent[n] -> QUEUED : HELD);
     sum[X(n, i)] = (sent[n] -> 0 : (times));
     arrival[X(n, i)] = all
  fi;
  entry[X(n, i)] = e;
  wiped[X(n, i)] = d
}

inline deliver_update(n, i) {
  e = update[X(n, i)] / 2;
  z = update[X(n, i)] % 2;
  update[X(n, i)] = 0;
  if
  :: state[X(n, i)] != OUT && FREE(n, i) && FRESH(n, i, e) ->
     take(n, i, e, z, BIT(i), 1);
#ifdef COUNT_ON_ACK
     if
     :: session[i] == n && site[i] == PENDING && digest[i] == z -> site[i] = COUNTED
     :: else
     fi
#endif
  :: else
  fi
}

inline deliver_partial(a, n) {
  w = 0;  /* whom it must do without */
  z = 0;  /* whom it names */
  for (k : 0 .. 2) {
    e = fly_entry[X(a, k)];
    z = z | (e != 0 -> BIT(k) : 0);
    w = w | (e != 0 && !(state[X(n, k)] != OUT && FREE(n, k) && FRESH(n, k, e) && BELOW(n, k, a)) -> BIT(k) : 0)
  }
  q = (n == R -> fly_attempt[a] == root_attempt : attempt[B] != 0 && fly_attempt[a] == attempt[B]);
  if
  :: q && w == 0 ->
     for (k : 0 .. 2) {
       if
       :: z & BIT(k) -> take(n, k, fly_entry[X(a, k)], ((fly_wiped[a] >> k) & 1), z, fly_sum[X(a, k)])
       :: else
       fi
     }
  :: else
  fi;
  if
  :: !fly_cut[a] -> down[a] ! RECEIPT, fly_sequence[a], (q && w == 0), (q -> w : 0)
  :: else
  fi;
  clear_flight(a)
}
