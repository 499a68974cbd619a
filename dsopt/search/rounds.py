"""Alternating rounds: launches the configurations alternately, so that drift over time affects all of them alike."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from dsopt.search.beside import run_again
from dsopt.search.history import History, Observation
from dsopt.search.steps import Finish, Step, Wait
from dsopt.study.space import Candidate

Entry = tuple[str, Candidate | None]


def next_in_rounds(
    history: History, entries: Sequence[Entry], rounds: int, kept_after: Callable[[int, list[str]], Collection[str]]
) -> Step:
    """The next run of so many rounds; every other round goes backwards, so that slow drift cancels out.

    Args:
        history: what is known.
        entries: names and candidates (None: no point of the space) in the order of the first round.
        rounds: at most so many.
        kept_after: which of these names the later rounds continue with.
    """
    for round_ in range(1, rounds + 1):
        if not entries:
            break
        is_waiting = False
        for name, candidate in entries if round_ % 2 else reversed(entries):
            of_it = _in_rounds(history, name)
            if len(of_it) < round_:
                step = run_again(history, name, candidate, None, _had_enough(history, name))
                return replace(step, round=round_ if history.find(name, round_) is None else step.round)
            is_waiting = is_waiting or of_it[round_ - 1].state == "running"
        if is_waiting:
            return Wait()
        kept = kept_after(round_, [name for name, _ in entries])
        entries = [(name, candidate) for name, candidate in entries if name in kept]
    return Finish()


def _in_rounds(history: History, name: str) -> list[Observation]:
    """The runs of a configuration in rounds, in their order: what ran again for a reason of its own is none of them."""
    return sorted((o for o in history.reference if o.name == name and o.round and o.why is None), key=lambda o: o.round)


def _had_enough(history: History, name: str) -> list[str]:
    """The nodes on which a configuration had more runs than on others: where each is on all, no node favours one."""
    counted = Counter({node: 0 for o in history.everything for node in o.ran_on})
    counted.update(node for o in history.everything if o.name == name for node in o.ran_on)
    fewest = min(counted.values(), default=0)
    return sorted(node for node, count in counted.items() if count > fewest)
