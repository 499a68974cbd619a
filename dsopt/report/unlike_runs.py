"""What sets the runs of a study apart from each other, or from a whole training, as warnings."""

from dsopt.report.changed_script import changed_script
from dsopt.report.odd_launches import odd_launches
from dsopt.search.history import History
from dsopt.study.spec import StudySpec


def unlike_runs(spec: StudySpec, history: History) -> list[str]:
    """Warnings of figures of several versions of one script, launches that contradict each other, further engines."""
    of_launches = odd_launches(history, spec.autotuning.unit)
    return [*changed_script(spec, history), *of_launches, *_further_engines(history)]


def _further_engines(history: History) -> list[str]:
    """A warning if runs have built several engines that train, since figures are of the first one."""
    most = max((o.facts.engines for o in history.everything if o.facts is not None), default=1)
    if most == 1:
        return []
    return [
        f"WARNING: your script trains with {most} engines of DeepSpeed, and all figures are of the first one that it "
        "builds: its steps, its samples, and the memory until the run ended. Let it build the one that takes the most "
        "time first, and look whether the whole training is faster and fits, before you rely on the result."
    ]
