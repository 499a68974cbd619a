"""Runs of a worker that is to be alone on its node have no neighbours, whoever else works there."""

import time

import pytest
import sqlalchemy as sa

from tests.conftest import SCRIPTS, Dsopt
from tests.outages import on_node
from tests.studies import write_study


@pytest.mark.slow
def test_of_two_workers_on_one_node_one_keeps_neighbours_off(dsopt: Dsopt, postgres_url: str) -> None:
    dsopt.environment |= {"DSOPT_STORAGE": postgres_url, "SIMULATED_SECONDS": "0.7"}
    write_study(
        dsopt.cwd,
        command=f"{SCRIPTS / 'deepspeed'} --num_gpus 1 train.py --deepspeed_config ds.json",
        ds_config={"train_micro_batch_size_per_gpu": [1, 2, 4, 8, 16], "zero_optimization": {"stage": [0, 1]}},
        autotuning={"tuner_type": "gridsearch"},
    )
    dsopt("study", "create", "study.yaml")
    words = ["worker", "simulated", "--devices", "cpu:2"]
    alone = on_node(dsopt, "here", *words, "--exclusive")
    while not (runs := runs_of(postgres_url)):
        assert alone.poll() is None
        time.sleep(0.1)
    [(exclusive, _, _)] = runs
    for worker in (alone, on_node(dsopt, "here", *words)):
        output, _ = worker.communicate(timeout=300)
        assert worker.returncode == 0, output
    runs = runs_of(postgres_url)
    assert len(runs) > 10
    assert not [(one, other) for one in runs for other in runs if one[0] == exclusive and overlap(one, other)]


def runs_of(url: str) -> list[tuple[str, float, float]]:
    """The worker of each run, and when it began and ended."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT worker_id, started_at, finished_at FROM dsopt_attempts")).all()
    engine.dispose()
    return [(worker, start, end) for worker, start, end in rows]


def overlap(one: tuple[str, float, float], other: tuple[str, float, float]) -> bool:
    return one is not other and one[1] < other[2] and other[1] < one[2]
