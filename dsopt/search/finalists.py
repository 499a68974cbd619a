"""Which measured candidates are confirmed: those that may be the best, given the noise."""

import itertools

from dsopt.search.baseline_twin import baseline_test
from dsopt.search.confirm import may_be_best
from dsopt.search.history import History, Observation
from dsopt.search.unconfirmed import failed_finalists
from dsopt.study.spec import StudySpec


def finalists(spec: StudySpec, history: History) -> list[Observation]:
    """The measured candidates that may be the best, given the noise: at most as many as the spec allows.

    Imported figures were measured differently, so they are compared among themselves. The best of the imported and of
    the others alternate; neither kind is left out. One that failed in the confirmation makes room for the next.
    """
    failed = failed_finalists(history)
    ranked = sorted((o for o in history.measured if o.name not in failed), key=history.score, reverse=True)
    is_own, kinds = baseline_test(spec, history), []
    for is_imported in (False, True):
        alike = [o for o in ranked if (o.imported is not None) == is_imported]
        near = [o for o in alike if may_be_best(history, o, alike[0])]
        kinds.append([o for o in near if not is_own(o.candidate)])
    in_turn = [o for pair in itertools.zip_longest(*kinds) for o in pair if o is not None]
    return in_turn[: max(spec.confirmation.finalists, sum(bool(kind) for kind in kinds))]
