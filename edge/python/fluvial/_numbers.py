"""What a script says of its own training, and people read: how many samples, and metrics."""

from __future__ import annotations

import math
import warnings
from typing import Any, Dict, Mapping, Optional, Set, Tuple

from .errors import TooManySamples

SAMPLES_MAX = 2**29 - 1  # of an update, whatever the site's token allows
METRIC_MAX = 1e100  # what is beyond it counts as infinite (core/round/reported.h)
_METRICS_MAX = 64
_METRIC_NAME_MAX = 64
Metrics = Optional[Mapping[str, float]]


def samples_of(samples: Any, most: int) -> int:
    """The weight of an update. ValueError: no whole number from 1 on. TooManySamples: more than `most`, of the site's token."""
    try:
        count = int(samples)
        is_whole = not isinstance(samples, (str, bytes)) and bool(count == samples)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # a text, NaN, an array of several numbers
        is_whole = False
    if not is_whole:
        raise ValueError(f"samples is {_shown(samples)}, expected a whole number, 1 or more: how many the update was trained on")
    if count < 1:
        raise ValueError(
            f"samples is {count}, expected 1 or more: a site without data sits the round out, with `continue` instead of submit"
        )
    if count > most:
        divisor = 1000
        while count // divisor > most:
            divisor *= 1000
        raise TooManySamples(
            f"samples is {count}, and all workers of this site may have {most} together (weight_max, which its token says): "
            f"give samples=n/{divisor}, whole and 1 or more, at all sites; or enrol this site with a token of a greater "
            "--weight-max"
        )
    return count


def metrics_of(metrics: Metrics) -> Dict[str, float]:
    """The metrics as numbers. TypeError and ValueError name the one that is none, and what to do."""
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics is a {type(metrics).__name__}, expected numbers by name, as {{'loss': 0.5}}")
    if len(metrics) > _METRICS_MAX:
        raise ValueError(f"{len(metrics)} metrics are too many: at most {_METRICS_MAX}")
    return {_checked_name(name): _number(name, value) for name, value in metrics.items()}


def counts(value: float) -> bool:
    """Whether a metric's mean takes this value in."""
    return abs(value) <= METRIC_MAX


def warn_of_not_finite(metrics: Mapping[str, float], of: str, run: str, warned: Set[Tuple[str, str]]) -> None:
    """RuntimeWarning, once a run and name: means and views leave such a value out, and so does whoever looks for the best."""
    for name, value in metrics.items():
        if not counts(value) and (run, name) not in warned:
            warned.add((run, name))
            warnings.warn(
                f"metric {name!r} is {value} in {of}: the mean is that of the others, and `rounds show` says who was left out; "
                "where there are none, early stopping and models_kept_best pass the round over. Later ones of that name are left "
                "out without a word",
                RuntimeWarning,
                stacklevel=4,
            )


def _checked_name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"metric {name!r}: its name is a {type(name).__name__}, expected a text")
    if not (1 <= len(name) <= _METRIC_NAME_MAX and all("!" <= letter <= "~" for letter in name)):
        raise ValueError(f"metric {name!a}: a name is 1 to {_METRIC_NAME_MAX} printable ASCII characters, no blanks")
    return name


def _number(name: str, value: Any) -> float:
    is_text = isinstance(value, (str, bytes, bytearray))
    try:
        if not is_text:
            return float(value)
    except OverflowError:  # an integer beyond floating point
        return -math.inf if value < 0 else math.inf
    except (TypeError, ValueError, RuntimeError):
        pass
    kind = "a text" if is_text else f"a {type(value).__name__}"
    raise TypeError(
        f"metric {name!r} is {_shown(value)}, {kind}; expected one number: give several under names of their own, as "
        f"'{name}.0', and texts to your own log"
    )


def _shown(value: Any) -> str:
    shown = repr(value).replace("\n", " ")
    return shown if len(shown) <= 80 else shown[:77] + "..."
