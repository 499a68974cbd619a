"""Whether the best was measured on samples as long as those of the baseline: data may be in an order of length."""

from collections.abc import Sequence
from statistics import fmean
from typing import Final

from dsopt.protocol.text import significant
from dsopt.search.facts import ModelFacts
from dsopt.search.history import BASELINE, History

_ALIKE: Final = 1.5  # times


def samples_text(history: History, best: str) -> str | None:
    """What to know of the samples that a result was measured on; None if there is nothing."""
    return " ".join(filter(None, [_uncounted(history), unlike_samples(history, best)])) or None


def unlike_samples(history: History, best: str) -> str | None:
    """A sentence if the samples of the best's runs had clearly more or fewer elements than the baseline's; else None.

    Sizes of batches are in the facts of a run, padding included.
    """
    ours, baseline = _elements(history, best), _elements(history, BASELINE)
    if not (ours and baseline):
        return None
    ratio = ours / baseline
    if 1 / _ALIKE < ratio < _ALIKE:
        return None
    differ = f"{significant(ratio, 2)} times" if ratio > 1 else f"only {100 * ratio:.0f} % of"
    return (
        f"A sample in the runs of {best} had {differ} the elements (tokens, pixels) of one in the baseline's, padding "
        "included. If larger batches are padded to longer samples, that is their cost. If the data are in an order of "
        "length, the two were measured on different samples, and the factor is not that of a whole epoch: shuffle them."
    )


def _uncounted(history: History) -> str | None:
    """A warning if a step of the user's own run was fed more samples than the engine counts; else None."""
    own = history.find(BASELINE)
    facts = None if own is None else own.facts
    if facts is None or facts.rows != facts.micro_batch or not facts.step_rows:
        return None
    times = facts.step_rows / (facts.micro_batch * facts.gas)
    if times < _ALIKE:
        return None
    return (
        f"WARNING: each step was fed {significant(times, 2)} times the samples that DeepSpeed's engine counts. If your "
        "script accumulates by itself, all throughputs and global batches are so many times as large as told; factors "
        "hold. If it passes each batch several times, they are right."
    )


def _elements(history: History, name: str) -> float:
    """The elements of one sample, over the runs of a name; 0 if nobody saw them."""
    seen: Sequence[ModelFacts] = [o.facts for o in history.everything if o.name == name and o.facts is not None]
    counted = [facts.step_elements / (facts.micro_batch * facts.gas) for facts in seen if facts.step_elements]
    return fmean(counted) if counted else 0.0
