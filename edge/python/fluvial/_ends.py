"""Which runs are over, to a worker or an evaluator that may attach to its agent more than once."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Set

from ._progress import Waiting


class Ends:
    """Runs in which this process took part, by number, and those whose end whoever iterates has heard of."""

    def __init__(self) -> None:
        self.taken: Dict[int, str] = {}  # with their names: runs of which it was given a round or a model
        self._told: Set[int] = set()

    def is_of(self, ended: Any, run: str) -> bool:
        """Whether a RunEnded is of a run of that name. An agent that was started anew may not know the name."""
        return run in (ended.run_name, self.taken.get(ended.run))

    def told(self, run: int) -> None:
        self._told.add(run)

    def before(self, ends: Iterable[Any], run: str, waiting: Waiting, peek: bool = False) -> bool:
        """Whether one of these runs, which ended while it was not attached, is the one that it took part in.

        `waiting` says so of a later one of that name. peek: the end stays there for whoever asks next.
        """
        new = [ended for ended in ends if self.is_of(ended, run) and ended.run not in self._told]
        for ended in new:
            if ended.run in self.taken:
                if not peek:
                    self.told(ended.run)
                return True
        known = max((number for number, name in self.taken.items() if name == run), default=0)
        last = max(new, key=lambda ended: ended.run, default=None)
        if last is not None and last.run > known:
            waiting.ended_before(run, last.run, last.state)
        return False
