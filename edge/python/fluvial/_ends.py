"""Which runs go on and which are over, to a worker or an evaluator that may attach to its agent more than once."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Set

from ._progress import Waiting

_FOLLOWED_MAX = 16  # that an agent is told of


class Ends:
    """The runs whose end this process waits for, by number: those of a name that went on while a loop over that name was
    there, and those of which it was given a round or a model."""

    def __init__(self) -> None:
        self.taken: Dict[int, str] = {}  # with their names
        self._told: Set[int] = set()  # those whose end whoever iterates has heard of
        self._active: Dict[int, str] = {}  # that go on, as the agent says
        self._wanted: List[str] = []  # names of the loops that are there

    def attached(self, active: Iterable[Any]) -> None:
        """Anew, to an agent that knows of these."""
        self._active = {}
        for run in active:
            self.active(run)

    def active(self, run: Any) -> None:
        """A RunActive came."""
        self._active[run.run] = run.run_name
        if run.run_name in self._wanted:
            self.taken[run.run] = run.run_name

    def ended(self, run: int) -> None:
        self._active.pop(run, None)

    def begin(self, run: str) -> None:
        """A loop over this name begins; from now on, until end(), runs of it are followed."""
        self._wanted.append(run)
        self.taken.update({number: name for number, name in self._active.items() if name == run})

    def end(self, run: str) -> None:
        self._wanted.remove(run)

    def followed(self) -> List[int]:
        """What an agent is asked about, to which this process attaches: the newest."""
        return sorted(set(self.taken) - self._told)[-_FOLLOWED_MAX:]

    def is_of(self, ended: Any, run: str) -> bool:
        """Whether a RunEnded is of a run of that name. An agent that was started anew may not know the name."""
        return run == ended.run_name or (not ended.run_name and run == self.taken.get(ended.run))

    def is_followed(self, ended: Any, run: str) -> bool:
        """Whether it is the end of a run of that name that this process waits for. Others were over before."""
        return ended.run in self.taken and self.is_of(ended, run)

    def told(self, run: int) -> None:
        self._told.add(run)

    def before(self, ends: Iterable[Any], run: str, waiting: Waiting, peek: bool = False) -> bool:
        """Whether one of these runs, which ended while it was not attached, is one that it waits for.

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
