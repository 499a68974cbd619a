"""Which candidates are measured again in rounds, where the user asks for rounds (`confirmation`)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dsopt.search.baseline_twin import baseline_test
from dsopt.search.history import History, Observation
from dsopt.search.standing import standing_of
from dsopt.search.unconfirmed import failed_finalists
from dsopt.study.spec import Confirmation, StudySpec

_OUT_OF_IT: Final = 0.02  # probability of being the best below which a configuration is not measured again
_NEGLIGIBLE: Final = 0.005  # expected loss that is not worth another round


def finalists(spec: StudySpec, history: History, asked: Confirmation) -> list[Observation]:
    """The candidates measured here that may be the best: at most as many as the user allows.

    What was measured elsewhere has had its run here before. One that failed when it ran again makes room for the next.
    What they are does not change during the rounds.
    """
    known = [o for o in history.reference if not o.round or (o.why is not None and o.round <= asked.rounds)]
    before = replace(history, reference=known, learnt={})
    failed, chances = failed_finalists(history), _chances(spec, before)
    ranked = sorted((o for o in history.measured if o.name not in failed), key=history.score, reverse=True)
    is_own, here = baseline_test(spec, history), map(history.measured_here, ranked)
    others = [o for o in here if o.imported is None and not is_own(o.candidate)]
    others.sort(key=lambda o: -chances.get(o.name, 0.0))
    likely = [o for n, o in enumerate(others) if n == 0 or chances.get(o.name, 0.0) >= _OUT_OF_IT]
    return likely[: asked.finalists]


def contenders(
    spec: StudySpec, history: History, names: Sequence[str], asked: Confirmation, share_of_training: float | None
) -> list[str]:
    """Which configurations to measure again after a round; none when it is clear which is best.

    That is clear when the best has the probability that the user asks for, or when more measurements can gain hardly
    anything: the expected loss is below half a per cent, or below the share of the training that the runs take.

    Args:
        share_of_training: the share that a run takes, if runs must pay for themselves.
    """
    standing = standing_of(spec, history)
    if standing is None:
        return []
    chances, regret = standing.certainty()
    left = [name for name in names if chances.get(name, 0.0) >= _OUT_OF_IT]
    least = _NEGLIGIBLE if share_of_training is None else share_of_training * len(left)
    return [] if chances[standing.best] >= asked.certainty or regret < least else left


def _chances(spec: StudySpec, history: History) -> dict[str, float]:
    standing = standing_of(spec, history)
    return standing.certainty()[0] if standing is not None else {}
