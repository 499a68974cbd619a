"""What sets the runs of a study apart from each other, or from a whole training, as warnings."""

import json
from collections.abc import Sequence
from typing import Final

from dsopt.protocol.text import significant
from dsopt.report.changed_config import changed_config
from dsopt.report.changed_script import changed_script
from dsopt.report.doubts import qualities_of
from dsopt.report.odd_launches import odd_launches
from dsopt.report.samples import growing_samples
from dsopt.report.software import several_versions
from dsopt.search.facts import ModelFacts
from dsopt.search.history import BASELINE, History
from dsopt.study.ds_config import TRAIN_BATCH
from dsopt.study.mapped_flags import contradictions
from dsopt.study.own_settings import settings_in
from dsopt.study.quantity import gib
from dsopt.study.space import MICRO_BATCH
from dsopt.study.spec import StudySpec

_BEYOND: Final = 30  # steps
_FEW: Final = 2  # runs, of which one tells enough
_WIDE: Final = 50.0  # per cent of a run's mean: its steps are of several kinds
_NARROWER: Final = 5.0  # times
_SMALLER: Final = 0.05  # as a share of the memory of the largest device
_MANY: Final = 30  # steps; in fewer, one that something disturbed has as much weight


def unlike_runs(spec: StudySpec, history: History) -> list[str]:
    """Warnings of files, flags, models and samples that changed, contradicting launches, engines, and slow input."""
    unlike = _unlike_rows(spec, history)
    notes = [changed_config(spec), unlike, *(found.result_text() for found in contradictions(spec) if unlike is None)]
    of_config = [f"WARNING: {note}" for note in notes if note is not None]
    of_launches = odd_launches(history, spec.autotuning.unit)
    other_rows = _other_rows(history) if unlike is None else []
    of_samples = [*growing_samples(qualities_of(history)), *_rare_samples(history), *other_rows]
    of_model = [*_other_models(history), *_further_engines(history), *_own_settings(spec, history)]
    of_nodes = _unlike_memory(history)
    of_files = [*of_config, *changed_script(spec, history), *several_versions(history)]
    return [*of_files, *of_model, *of_nodes, *of_launches, *of_samples, *_slow_input(history)]


def _other_models(history: History) -> list[str]:
    """A warning if runs trained models of several sizes: something that nobody compares has changed between them."""
    sizes: dict[tuple[str, int], set[int]] = {}  # each counts in a way of its own: what AutoTP copies is doubled
    for o in history.everything:
        if o.facts is not None and o.engine is not None:
            sizes.setdefault((o.engine.framework, o.engine.autotp), set()).add(o.facts.num_params)
    differing = next((sorted(found) for found in sizes.values() if len(found) > 1), None)
    if differing is None:
        return []
    return [
        f"WARNING: runs trained models of different sizes, from {differing[0]:,} to {differing[-1]:,} parameters. "
        "Factors compare these, too. Has something that the script reads been changed? Tune in a new study "
        "(another --name)."
    ]


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


def _unlike_memory(history: History) -> list[str]:
    """A warning if devices of one node have less memory than those of another, by runs on one node."""
    runs = [(o.ran_on[0], o.facts.device_memory_bytes) for o in history.everything if len(o.ran_on) == 1 and o.facts]
    memory = {node: min(size for other, size in runs if other == node) for node, _ in runs}
    if not memory:
        return []
    least, most = (choose(memory, key=lambda node: memory[node]) for choose in (min, max))
    if memory[least] >= (1 - _SMALLER) * memory[most]:
        return []
    return [
        f"WARNING: a device of {most} has {gib(memory[most])} of memory, and one of {least} "
        f"{gib(memory[least])}: what ran out of it on {least} counts as what fits nowhere, so a faster "
        f"configuration for {most} may be missing. Give a study workers on nodes of one kind, under another --name."
    ]


def _own_settings(spec: StudySpec, history: History) -> list[str]:
    """What the script sets by itself of what would have been tuned."""
    engines = [o.engine for o in history.everything if o.engine is not None]
    seen = {path: value for engine in engines for path, value in settings_in(engine.own_settings).items()}
    tuned = {key for stage in spec.stages for key, choices in spec.space(stage).knobs.items() if len(choices) > 1}
    if not (own := sorted(seen.keys() & tuned)):
        return []
    told = ", ".join(f"{path} ({json.dumps(seen[path])})" for path in own)
    return [f"Your script sets {told} itself, whatever the configuration says. dsopt tried nothing else there."]


def _rare_samples(history: History) -> list[str]:
    """A warning if some runs met steps that take far longer than others, and others were short and met none."""
    runs = [(o.quality.interval_percent, o.noise) for o in history.everything if o.quality is not None]
    narrow = min((percent for percent, _ in runs), default=0.0)
    wide = max((percent for percent, noise in runs if noise is not None and noise.steps >= _MANY), default=0.0)
    if wide < _WIDE or narrow > wide / _NARROWER:
        return []
    return [
        f"WARNING: in some runs steps differed much more (±{significant(wide, 2)} %) than in others "
        f"(±{significant(narrow, 2)} %). If a few of your samples take far longer, such as rare long texts, "
        "runs that ended before they met one are too fast, and a whole training may gain nothing. Let all runs go on "
        "for longer, with 'measurement: {precision: 0.001, max_steps: 300, max_seconds: 120}' in a study file, and "
        "tune in a new study."
    ]


def _other_rows(history: History) -> list[str]:
    """What to know of sizes, if the user's own script feeds another number of rows than its configuration says samples.

    More rows may be what a sample consists of, unless the script has shown that it does not follow its configuration.
    """
    facts = next((o.facts for o in history.reference if o.facts is not None), None)
    if facts is None or facts.rows <= 1 or facts.rows == facts.micro_batch:
        return []
    told = f"Your script feeds batches of {facts.rows} rows, where its configuration says {facts.micro_batch} samples."
    if facts.rows < facts.micro_batch:
        return [
            f"{told} If a row is one sample, as with Accelerate's split_batches, samples/s and batch sizes are too "
            "large here, by the same factor everywhere. Factors between configurations hold."
        ]
    if all(o.reason != "fixed_batch" for o in history.observations):
        return []
    return [
        f"{told} If a row is one sample, samples/s, batch sizes and costs are of too few samples here, by the same "
        f"factor everywhere: put {facts.rows} into the configuration. Factors between configurations hold."
    ]


def _unlike_rows(spec: StudySpec, history: History) -> str | None:
    """What to know if a script that follows a mapped flag did so in candidates' runs, and not in the user's own."""
    own = next((o.facts for o in history.reference if o.facts is not None and o.name == BASELINE), None)
    if own is None or own.rows <= 1 or own.rows == own.micro_batch:
        return None
    ratio = (own.step_rows or own.rows * own.gas) / (own.micro_batch * own.gas)
    if ratio == 1:  # in more passes of fewer rows, as the Trainer accumulates by its flag
        return None
    is_mapped = not {MICRO_BATCH, TRAIN_BATCH}.isdisjoint(spec.autotuning.arg_mappings)
    if not is_mapped or not _follows_sizes([o.facts for o in history.observations if o.facts is not None], own.rows):
        return None
    return (
        f"your own run was fed batches of {own.rows} rows, where its configuration says {own.micro_batch} samples, and "
        "candidates as many as theirs say. So the factor compares different things, and may be wrong by a factor of "
        f"{significant(max(ratio, 1 / ratio), 2)}. Put the batch size that you train with into the "
        "configuration, and tune in a new study (another --name)."
    )


def _follows_sizes(runs: Sequence[ModelFacts], own_rows: int) -> bool:
    """Whether rows are samples in the runs of candidates; of one size, they may be as many by chance."""
    following = [facts for facts in runs if facts.rows == facts.micro_batch]
    differ = len({facts.micro_batch for facts in following}) > 1 or len(following) == len(runs)
    return differ and any(facts.rows != own_rows for facts in following)


def _slow_input(history: History) -> list[str]:
    """A warning if runs were too short to show that reading is slower than training; one of many may be an odd one."""
    qualities = qualities_of(history)
    told = [quality.read_ahead for quality in qualities if quality.read_ahead]
    if not told or (len(told) == 1 and len(qualities) > _FEW):
        return []
    most = max(told)
    return [
        f"WARNING: your script reads its input more slowly than it trains. What it read while it began lasts for up to "
        f"{most} steps, and runs ended before: a whole training is slower than all figures, and may gain nothing. "
        f"Set 'measurement: {{max_steps: {_rounded(most)}, max_seconds: …}}' in a study file so that runs go on for "
        "longer than that, and tune in a new study, or let the script read faster."
    ]


def _rounded(steps: int) -> int:
    """Steps for a run that has enough of them after these."""
    return -(-(steps + _BEYOND) // 10) * 10
