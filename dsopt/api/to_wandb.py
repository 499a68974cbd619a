"""A study in Weights & Biases, which is an extra: one run, with the best, and a table of every launch."""

import os
from typing import Any, Final

from dsopt.api.exporting import with_times
from dsopt.api.trackers import TrackedStudy

_PROJECT: Final = "dsopt"  # unless WANDB_PROJECT says another one


def send(study: TrackedStudy) -> str:
    """Writes a study as a run of wandb, online or, with `WANDB_MODE=offline`, to a folder.

    Returns:
        Where it is.

    Raises:
        ImportError: wandb is not installed.
        Exception: whatever wandb raises.
    """
    from wandb import Settings, Table, init

    run = init(
        project=os.environ.get("WANDB_PROJECT") or _PROJECT,
        id=f"dsopt-{study.id}",  # the same for each export: wandb replaces the earlier one
        name=study.name,
        job_type="tuning",
        notes=study.outcome.sentence,
        config=dict(study.config),
        reinit="create_new",
        save_code=False,
        settings=Settings(silent=True, console="off", disable_git=True, x_disable_stats=True, x_disable_meta=True),
    )
    try:
        run.summary.update({**study.words, **study.figures})
        rows: list[list[Any]] = [with_times(row, study.table.columns) for row in study.table.rows]
        run.log({"runs": Table(columns=list(study.table.columns), data=rows, allow_mixed_types=True)})
    except BaseException:
        run.finish(exit_code=1)
        raise
    run.finish()
    if run.offline:
        return f"{run.settings.sync_dir}; upload it with: wandb sync {run.settings.sync_dir}"
    return str(run.url)
