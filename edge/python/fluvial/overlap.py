"""Training on while a round is in the air: `submit(..., overlap=True)`.

With theta_r the model that round r starts from, and l_r the model a worker submitted in it: the next round is there at
once and starts from l_r. When it is submitted, trained to e_r, the worker waits for theta_(r+1) and hands over

    l_(r+1) = theta_(r+1) + (e_r - l_r),

from which it may train on in turn. So what a worker learns reaches the others one round late, and nobody waits for the
network unless a round takes longer than the local steps (DaSGD, Zhou et al., arXiv:2006.00441; Streaming DiLoCo,
Douillard et al., arXiv:2501.18512, overlaps in the same way). Integers move as far as they were moved; truth values
are those of e_r.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple

import numpy as np

from . import _pieces, _precision, models
from .errors import RoundClosed
from .round import Round


class OverlappedRound(Round):
    """The round after one that was submitted with `overlap`: at work before the agent gave it out.

    Its `number` is what is expected until it is submitted, its `config` that of the round before. Its arrays() are valid until then. When the run ends
    meanwhile, what was trained in it is dropped: submit() returns, and so do rounds(). `continue` without submit drops
    it, too, and the round comes again, from the committed model.
    """

    def __init__(self, before: Round, timeout_s: Optional[float]) -> None:
        self._site = before._site
        self._timeout_s = timeout_s
        self._local = before._host_result()  # what was submitted stands there until the next task
        self._open = True
        self._in_parts = False
        self._there = before._there
        self._loads = _precision.Loads()
        self.run = before.run
        self.run_id = before.run_id
        self.number = before.number + 1
        self.version = before.version + 1
        self.local_steps = before.local_steps
        self.samples_max = before.samples_max
        self.config = before.config
        self.parameters = before.parameters
        self.optimizer = before.optimizer
        self.previous = None
        self.schema = before.schema

    def _data(self) -> np.ndarray:
        self._checked(None)
        data = self._local.array.view()
        data.flags.writeable = False
        return data

    def _arrays(self) -> Dict[str, np.ndarray]:
        self._check_there(None)
        return super()._arrays()

    def _check_there(self, wanted: Optional[np.ndarray]) -> None:
        """That these ranges (None: all of the model) are what the round goes on from."""
        if self._there is not None and (wanted is None or not _pieces.covers(self._there, wanted)):
            raise RoundClosed(
                f"round {self.number} of {self.run} goes on from the part of the model that this rank handed over, and the rest "
                "is not here: train that part on, or take flat() at its places, and hand the same part over"
            )

    def fail(self, reason: str) -> None:
        """Drops what was trained in it; the round itself comes next."""
        self._checked(None)
        self._open = False

    def _given_out(self, given: Any) -> Any:
        raise RoundClosed(f"round {self.number} of {self.run} is overlapped: it takes submit() and submit_shard() alone")

    def _submit(self, given: Sequence[Tuple[Any, Any]], done: Any, overlap: bool) -> None:
        self._check_there(None)
        self._go_on([_pieces.Given(_pieces.whole(tensor), source, source) for tensor, source in given], None, done, overlap)

    def _submit_pieces(self, given: Sequence[_pieces.Given], ranges: np.ndarray, done: Any, overlap: bool) -> None:
        self._check_whole(ranges)
        self._check_there(_pieces.ranges_of([one.piece for one in given]))
        self._go_on(given, ranges, done, overlap)

    def _go_on(self, given: Sequence[_pieces.Given], ranges: Optional[np.ndarray], done: Any, overlap: bool) -> None:
        real = self._site._next_round(self.run, self._timeout_s, peek=True)
        self._open = False
        if real is None:
            return
        self._site._current = real
        local, base = real._host_result().array, real._data()
        for piece, source, trained in given:
            end, here, there = np.empty(piece.shape, piece.tensor.dtype), piece.view(local), piece.view(base)
            models.write_tensor(end, source)
            if piece.tensor.averaged:
                _precision.hand_over(end, here, self._loads.starts(piece.tensor.name, trained), onto=there)
            elif end.dtype.kind != "b":
                np.subtract(end, here, out=end)
                np.add(there, end, out=end)
            np.copyto(here, end)
        self.number, self.version, self.previous = real.number, real.version, real.previous
        real._hand_over(done, ranges)
        if overlap:
            self._site._go_on_from(self)
