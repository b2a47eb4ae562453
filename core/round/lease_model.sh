#!/bin/sh
# Checks a model of this folder exhaustively: lease_model.sh MODEL EXPECTED COMPILER [-DNAME[=VALUE]...]
# EXPECTED: "holds", "fails" (a mutation: it must have a counterexample) or "ends" (no execution goes on for ever).
# Exit status: 0 as expected, 1 not, 77 spin is not installed. Works in a folder of its own and leaves nothing.
set -eu
name=$1 expected=$2 compiler=$3
model=$(cd "$(dirname "$0")" && pwd)/$name.pml
shift 3
command -v spin >/dev/null || { echo "skipped: spin is not installed (Debian and Ubuntu: package spin)"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

spin -a "$@" "$model"
# One process: no partial order to reduce.
kind=-DSAFETY search=
[ "$expected" != ends ] || kind=-DNP search=-l
"$compiler" -O2 -w "$kind" -DNOREDUCE -DMEMLIM=3000 -o pan pan.c
# shellcheck disable=SC2086
./pan -m1000 -w20 $search >report || true
cat report

grep -q 'errors: [0-9]' report || { echo "no verdict"; exit 1; }
if grep -q 'errors: 0' report; then verdict=holds; else verdict=fails; fi
[ "$expected" != ends ] || expected=holds
# An exhaustive search that did not get to its end has shown nothing.
if [ "$verdict" = holds ] && grep -Eq 'max search depth too small|Search not completed|out of memory' report; then
  echo "the search is not complete"
  exit 1
fi
if [ "$verdict" = fails ] && [ "$expected" = holds ]; then
  spin -t -p -g "$@" -k "$name.pml.trail" "$model" | grep -v '\[(1)\]' | tail -n 200
fi
[ "$verdict" = "$expected" ]
