"""What a tuning measured, as a recorded grid: its runs are data, too."""

import datetime
import importlib.metadata
from collections import Counter
from collections.abc import Iterator

from benchmarks.grid import About, Grid, Launched
from dsopt.search.history import History, Observation
from dsopt.store.studies import Store
from dsopt.study.ds_config import baseline_config
from dsopt.study.space import Candidate
from dsopt.worker.history import load_history


def grid_of(storage: str, name: str) -> Grid | None:
    """The runs of a study that were measured or ran out of memory, as launches; None if there are none.

    A launch has the mean of its steps in place of each, and no start.
    """
    store = Store.open(storage)
    study = store.read(name)
    history = load_history(store, study)
    facts = history.facts
    if facts is None:
        return None
    about = About(
        name=f"{study.spec.name}, tuned",
        date=datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat(),
        versions={package: importlib.metadata.version(package) for package in ("dsopt", "torch", "deepspeed")},
        device=f"{facts.world_size} × {facts.device}",
        command=study.spec.command,
        baseline=baseline_config(study.spec.ds_config),
        max_train_batch_size=study.spec.autotuning.max_train_batch_size,
        nodes=study.spec.resources.nodes,
        ranks=facts.world_size,
        params=facts.num_params,
        trainable_params=facts.trainable_params,
        memory_bytes=facts.device_memory_bytes,
    )
    return Grid(about=about, launches=tuple(_launches(history)))


def _launches(history: History) -> Iterator[Launched]:
    times: Counter[Candidate] = Counter()
    for run in sorted(history.everything, key=lambda run: run.order):
        candidate = run.candidate or (run.facts.candidate() if run.facts else None)
        if candidate is None or (run.facts is None and run.reason != "oom"):
            continue
        yield _launched(candidate, times[candidate], run)
        times[candidate] += 1


def _launched(candidate: Candidate, launch: int, run: Observation) -> Launched:
    facts = run.facts
    return Launched(
        candidate=candidate,
        launch=launch,
        oom=None if facts else run.message,
        elsewhere=0.0,
        start_seconds=0.0,
        step_seconds=(run.step_seconds,) if run.step_seconds else (),
        forward_seconds=0.0,
        backward_seconds=0.0,
        optimizer_seconds=0.0,
        peak_allocated_bytes=facts.peak_allocated_bytes if facts else 0,
        peak_reserved_bytes=facts.peak_memory_bytes if facts else 0,
        activation_bytes=facts.activation_bytes if facts else 0,
        flops_per_step=(facts.flops_per_step or 0.0) if facts else 0.0,
        samples_per_step=candidate.micro_batch * candidate.gas * facts.world_size if facts else 0,
    )
