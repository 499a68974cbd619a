"""What a forward pass leaves on a device: what runs have shown for the settings that may change it."""

import numpy as np

from dsopt.search.facts import ModelFacts
from dsopt.search.history import History
from dsopt.study.space import Setting, activation_knobs


def activation_lines(facts: ModelFacts, history: History) -> dict[Setting, tuple[float, float]]:
    """Activations as a line over micro-batch sizes, first value and slope, for each kind of setting that was run.

    `()` stands for every other kind: the user's own, else that of the least-memory profile. If nothing was seen, it is
    a quarter of the peak of the run that the facts are from.
    """
    run = history.telling_run
    own = activation_knobs(run.candidate.knobs) if run is not None and run.candidate is not None else ()
    seen: dict[Setting, dict[int, int]] = {}
    if facts.activation_bytes:
        seen[own] = {facts.micro_batch: facts.activation_bytes}
    for o in history.everything:
        if o.activations is not None:
            kind, size, left = o.activations
            seen.setdefault(kind, {})[size] = left
    lines = {kind: _line(left) for kind, left in seen.items()}
    unknown = (0.0, 0.25 * facts.peak_memory_bytes / facts.micro_batch)
    return {(): lines.get(own, unknown), **lines}


def _line(left: dict[int, int]) -> tuple[float, float]:
    sizes, sums = np.array(list(left), dtype=float), np.array(list(left.values()), dtype=float)
    if len(sizes) == 1:
        return 0.0, float(sums[0] / sizes[0])
    slope, first = np.polyfit(sizes, sums, 1)
    return (float(first), float(slope)) if slope > 0 else (0.0, float((sums / sizes).mean()))
