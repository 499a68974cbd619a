"""Whether the best was measured on samples as long as those of the baseline: data may be in an order of length."""

from collections.abc import Sequence
from statistics import fmean
from typing import Final

from dsopt.protocol.text import significant
from dsopt.search.facts import ModelFacts
from dsopt.search.history import BASELINE, History

_ALIKE: Final = 1.5  # times


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


def _elements(history: History, name: str) -> float:
    """The elements of one sample, over the runs of a name; 0 if nobody saw them."""
    seen: Sequence[ModelFacts] = [o.facts for o in history.everything if o.name == name and o.facts is not None]
    counted = [facts.step_elements / (facts.micro_batch * facts.gas) for facts in seen if facts.step_elements]
    return fmean(counted) if counted else 0.0
