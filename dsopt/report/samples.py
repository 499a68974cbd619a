"""Whether the best was measured on samples as long as those of the baseline: data may be in an order of length."""

from collections.abc import Sequence
from statistics import fmean
from typing import Final

from dsopt.protocol.text import significant
from dsopt.search.history import BASELINE, History, Observation
from dsopt.search.run_quality import RunQuality

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


def growing_samples(qualities: Sequence[RunQuality]) -> list[str]:
    """A warning if the samples of most runs became longer, or shorter, from their first steps to their last."""
    for sign, how in ((1, "longer"), (-1, "shorter")):
        growing = [q.growth_percent for q in qualities if q.growth_percent * sign > 0]
        if len(growing) > max(1, len(qualities) / 2):
            most = max(abs(percent) for percent in growing)
            return [
                f"WARNING: samples became {how} during {len(growing)} of {len(qualities)} runs, by up to {most:.0f} %. "
                "Are the data in an order of length, or does the script begin with short samples? Runs show the "
                "beginning of a training only: the factor, and the memory, of the rest may be quite others. Shuffle "
                "the data, or let experiments begin with the samples that the training has most of."
            ]
    return []


def sample_elements(o: Observation) -> float:
    """The elements of a sample of a run; 0 if nobody saw them."""
    return o.facts.step_elements / (o.facts.micro_batch * o.facts.gas) if o.facts is not None else 0.0


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
    counted = [elements for o in history.everything if o.name == name and (elements := sample_elements(o))]
    return fmean(counted) if counted else 0.0
