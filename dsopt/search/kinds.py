"""Which settings may leave as much in a forward pass as others: those that agree outside of ZeRO."""

from dsopt.search.history import History
from dsopt.search.least_memory import is_on, saves_activations
from dsopt.study.space import Setting, activation_knobs
from dsopt.study.spec import StudySpec


class Kinds:
    """The kind of a setting: where it differs from the run that facts are from, outside of ZeRO; `()` if nowhere.

    What a setting leaves out, as that of the user's own run leaves out everything, is as the user has it.
    """

    def __init__(self, spec: StudySpec, history: History) -> None:
        keys = dict.fromkeys(key for stage in spec.stages for key, _ in activation_knobs(_first(spec, stage)))
        run = history.telling_run
        self._own = {key: spec.own_value(key) for key in keys}
        self.base = self._own | dict(activation_knobs(run.candidate.knobs) if run and run.candidate else ())
        self._known: dict[Setting, Setting] = {}

    def of(self, setting: Setting) -> Setting:
        """The kind of a setting."""
        kind = self._known.get(setting)
        if kind is None:
            whole = self._own | dict(activation_knobs(setting))
            kind = tuple((key, value) for key, value in whole.items() if value != self.base.get(key))
            self._known[setting] = kind
        return kind

    def recomputes(self, kind: Setting) -> int:
        """1 if a kind recomputes activations and the run that facts are from does not; -1 the other way round; else 0.

        By the names of flags.
        """
        flags = [(key, value) for key, value in kind if saves_activations(key)]
        return sum(is_on(value) - is_on(self.base.get(key)) for key, value in flags)


def _first(spec: StudySpec, stage: int) -> Setting:
    return tuple((key, values[0]) for key, values in spec.space(stage).knobs.items())
