"""What a comparison runs next: each configuration in each round, for as long as it runs."""

from dsopt.search.beside import run_beside
from dsopt.search.history import BASELINE, History
from dsopt.search.rounds import Entry, next_in_rounds
from dsopt.search.steps import Finish, Step, Wait
from dsopt.study.comparison import rounds_of
from dsopt.study.spec import StudySpec


def comparison_step(spec: StudySpec, history: History) -> Step:
    """The next step of a comparison.

    Every configuration that runs is measured in all rounds, so that each has an interval; one that failed is not
    launched again. What the rounds did not bring to a node of the user's own, or of the first that runs, runs there.
    """
    entries: list[Entry] = [(BASELINE, None), *((run.name, None) for run in spec.compare)]

    def kept_after(round_: int, names: list[str]) -> list[str]:
        found = {name: history.find(name, round_) for name in names}
        return [name for name, run in found.items() if run is not None and run.state == "measured"]

    step = next_in_rounds(history, entries, rounds_of(spec), kept_after)
    if not isinstance(step, Finish):
        return step
    if any(o.state == "running" for o in history.reference):
        return Wait()
    states = {name: {o.state for o in history.reference if o.name == name} for name, _ in entries}
    reference = next((name for name, of_it in states.items() if "measured" in of_it), None)
    sound = [name for name, of_it in states.items() if of_it == {"measured"} and name != reference]
    beside = (run_beside(history, name, None, reference) for name in sound) if reference is not None else ()
    return next(filter(None, beside), step)
