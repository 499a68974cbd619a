"""A changed study begins with what an earlier one ran with the same configuration and command."""

import json
import os
import shutil
import socket
import time
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
import yaml

from dsopt.errors import DsoptError
from dsopt.experiment.outcome import Failed, Outcome, Slow
from dsopt.launch.outside import note_after, note_before
from dsopt.protocol.run_dir import RunDir
from dsopt.store.attempts import NewTask
from dsopt.store.studies import Store
from dsopt.store.takeover import EarlierRun, RunToKeep, earlier_runs
from dsopt.study.own_sources import Sources, script_source, sources_now
from dsopt.study.part import Part
from dsopt.study.space import ACCUMULATION, MICRO_BATCH
from dsopt.study.spec import StudySpec
from dsopt.worker.final_training import check_leftovers
from dsopt.worker.history import load_history
from dsopt.worker.takeover import _without_open_races, take_over
from tests.conftest import Dsopt
from tests.store.ledger import begin, ledger_of, measured, spec
from tests.studies import check_nothing_lost_nothing_doubled, write_study

pytestmark = pytest.mark.slow

SMALL = {
    "ds_config": {"train_micro_batch_size_per_gpu": [4, 8, 16], "zero_optimization": {"stage": 1}},
    "confirmation": {"finalists": 1, "rounds": 1},
    "stage_order": "sequential",  # which leaves nothing out
}


ANOTHER = ["--name", "new", "--take-over", "simulated"]


def change(dsopt: Dsopt, **keys: object) -> None:
    """Changes settings of the study file; script and configuration stay as they are."""
    known = yaml.safe_load((dsopt.cwd / "study.yaml").read_text())
    (dsopt.cwd / "study.yaml").write_text(yaml.safe_dump({**known, **keys}))


def run_small(dsopt: Dsopt, **keys: object) -> dict:
    """A finished study of three sizes at ZeRO 1, the smallest of them the user's own; as `show` gives it."""
    write_study(dsopt.cwd, **{**SMALL, **keys})
    dsopt("study", "create", "study.yaml")
    dsopt("worker", "simulated", "--devices", "cpu:2")
    return dsopt.json("study", "show", "simulated")


def test_another_limit_measures_nothing_again(dsopt: Dsopt) -> None:
    first = run_small(dsopt)
    change(dsopt, autotuning={"max_train_batch_size": 16})
    refused = dsopt("study", "create", "study.yaml", code=1)
    assert '+    "max_train_batch_size": 16' in refused
    assert "--name simulated-2 --take-over simulated" in refused
    again = ["study", "create", "study.yaml", "--name", "simulated-2", "--take-over", "simulated"]
    created = dsopt(*again)
    assert "Taken over from study 'simulated', not measured again: your configuration, ZeRO 1 · 8 × 1." in created
    assert "Skipped (1), because the study does not try its batch sizes: ZeRO 1 · 16 × 1." in created
    repeated = dsopt(*again)
    assert "not measured again: nothing new." in repeated
    assert "Already known: your configuration, ZeRO 1 · 8 × 1." in repeated

    dsopt("worker", "simulated-2", "--devices", "cpu:2")
    check_nothing_lost_nothing_doubled(dsopt, "simulated-2")
    second = dsopt.json("study", "show", "simulated-2")
    known = {run["candidate"]: run for run in first["runs"] if run["round"] == 0}
    for run in second["runs"]:
        if run["round"] == 0 and run["taken_over"]:
            assert (run["taken_over"], run["metric"]) == ("simulated", known[run["candidate"]]["metric"])
            assert run["run_dir"] == known[run["candidate"]]["run_dir"]
        else:
            assert "/simulated-2/" in run["run_dir"]
    made = [(run["candidate"], run["round"]) for run in second["runs"] if "/simulated-2/" in run["run_dir"]]
    searched = {name for name, round_ in made if round_ == 0}
    assert not searched & {"baseline", "z1_gas1_tmbspg8"}
    assert {name for name, round_ in made if round_ == 1} >= {"baseline"}, "the confirmation is run anew"
    assert "z1_gas1_tmbspg16" not in {run["candidate"] for run in second["runs"]}
    shown = dsopt("study", "show", "simulated-2", "--why")
    assert shown.count("taken over from study 'simulated'") == 2
    dsopt("study", "delete", "simulated", "--yes")
    assert dsopt("study", "show", "simulated-2", "--why") == shown, "it does not need the other any more"


def test_another_dimension_and_metric_keep_what_runs_the_same(dsopt: Dsopt) -> None:
    """What was run is now the value "not given" of a new dimension, under another name and in another unit."""
    first = run_small(dsopt)
    change(dsopt, search={"args": {"--fused": [None, ""]}}, stage_order="joint")
    change(dsopt, autotuning={"metric": "latency", "max_train_batch_size": 32})
    output = dsopt("study", "create", "study.yaml", "--name", "new", "--take-over", "simulated")
    assert "not measured again: your configuration, ZeRO 1 · " in output
    change(dsopt, stage_order="sequential")
    chained = dsopt("study", "create", "study.yaml", "--name", "newer", "--take-over", "new")
    assert "not measured again: your configuration, ZeRO 1 · " in chained
    steps = {run["candidate"]: run["metric"] for run in dsopt.json("study", "show", "newer")["runs"]}
    rates = {run["candidate"]: run["metric"] for run in first["runs"] if run["round"] == 0}
    assert steps["baseline"] == pytest.approx(8 / rates["baseline"] * 1000)
    assert steps["z1_fF_gas1_tmbspg16"] == pytest.approx(32 / rates["z1_gas1_tmbspg16"] * 1000)
    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    history = load_history(store, store.get("newer"))
    store.close()
    assert history.facts is not None
    assert history.facts.num_params == 10_000_000
    known = history.measured[0]
    assert (known.taken_over, known.launched, known.is_spent, known.phase) == ("simulated", True, False, "range")
    assert known.half_width is not None and known.seconds is not None and known.facts is not None
    assert known.ran_on == (socket.gethostname(),)


def test_a_changed_study_goes_on_with_what_is_new(dsopt: Dsopt) -> None:
    """Larger sizes are allowed now: only those are run, going through the stages in order too, and nothing twice."""
    run_small(dsopt, autotuning={"max_train_batch_size": 16})
    change(dsopt, autotuning={"max_train_batch_size": 32})
    dsopt("study", "create", "study.yaml", "--name", "larger", "--take-over", "simulated")
    dsopt("worker", "larger", "--devices", "cpu:2")
    check_nothing_lost_nothing_doubled(dsopt, "larger")
    runs = dsopt.json("study", "show", "larger")["runs"]
    assert {run["candidate"] for run in runs if run["round"] == 0 and not run["taken_over"]} == {"z1_gas1_tmbspg16"}
    assert dsopt.json("study", "best", "larger")["comparison"]["best"] == "z1_gas1_tmbspg16"


def test_a_machine_that_has_become_faster_does_not_make_the_users_own_the_best(dsopt: Dsopt) -> None:
    """The user's own is new and ran here; the best was taken over, with a figure that is lower than that of the own."""
    limits = {"autotuning": {"max_train_batch_size": 48}, "confirmation": None, "stage_order": "joint"}
    at = {"zero_optimization": {"stage": 1}}
    run_small(dsopt, **limits, ds_config={"train_micro_batch_size_per_gpu": [4, 8, 24], **at})
    dsopt.environment["SIMULATED_SPEED"] = "1.5"
    (dsopt.cwd / "ds.json").write_text(json.dumps({"train_micro_batch_size_per_gpu": [16, 4, 8, 24], **at}))
    created = dsopt("study", "create", "study.yaml", "--name", "new", "--take-over", "simulated")
    assert "ZeRO 1 · 24 × 1" in created and "your configuration" not in created.partition("Skipped")[0]
    dsopt("worker", "new", "--devices", "cpu:2")
    check_nothing_lost_nothing_doubled(dsopt, "new")
    result = dsopt.json("study", "best", "new")["comparison"]
    assert result["best"] == "z1_gas1_tmbspg24"
    low, high = result["interval"]
    assert low < (48 / 0.034) / (32 / 0.026) < high
    assert result["value"] == pytest.approx(1.5 * 48 / (0.9 * 0.034), rel=0.02)


@pytest.mark.parametrize(
    ("keys", "args", "message"),
    [
        ({}, ["--take-over", "simulated"], "'simulated' is this study itself"),
        ({}, ["--name", "new", "--take-over", "simulatde"], "Did you mean 'simulated'"),
        ({"measurement": {"max_steps": 31}}, ANOTHER, "other values of measurement, so"),
        ({"start": "direct"}, ANOTHER, "other values of start, so"),
        ({"memory_per_device": "1GiB"}, ANOTHER, "memory_per_device, so"),
        (
            {"autotuning": {"start_profile_step": 3}}, ANOTHER,
            "other values of start_profile_step and end_profile_step, so",
        ),
    ],
)  # fmt: skip
def test_a_study_of_which_nothing_can_be_the_same_is_refused_before_anything_is_created(
    dsopt: Dsopt, keys: dict, args: list[str], message: str
) -> None:
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    change(dsopt, **keys)
    output = dsopt("study", "create", "study.yaml", *args, code=1)
    assert message in output
    assert "Traceback" not in output
    assert [study["name"] for study in dsopt.json("study", "list")] == ["simulated"]


def run_of(
    store: Store, source: StudySpec, name: str, outcome: Outcome, part: str = "z0", sources: Sources | None = None,
    run_dir: str | None = None, **attrs: object,
) -> None:  # fmt: skip
    """Records a run of a study as a worker does, with what it showed."""
    study, _ = store.create(source)
    sizes = {}
    if part != "reference":
        sizes = {MICRO_BATCH: int(name.rpartition("tmbspg")[2]), ACCUMULATION: 1}
    frozen = optuna.create_trial(
        state=optuna.trial.TrialState.RUNNING, params=sizes, user_attrs={"candidate": name},
        distributions={key: optuna.distributions.IntDistribution(value, value) for key, value in sizes.items()},
    )  # fmt: skip
    ledger = ledger_of(store)
    new = NewTask(part=Part(part), name=name, round=0, frozen=frozen)
    task, attempt = begin(ledger, study, new, store, run_dir=run_dir or f"/tmp/{name}")
    shown = {**attrs, **({"sources": json.dumps(dict(sources))} if sources else {})}
    ledger.end(study, task, attempt, outcome, shown, is_told=True)


def test_what_was_taken_over_is_not_taken_again(store: Store) -> None:
    run_of(store, spec("old"), "baseline", measured(), part="reference")
    run_of(store, spec("old"), "z0_gas1_tmbspg2", measured())
    study, _ = store.create(spec("new"))
    assert take_over(store, study, store.get("old")).taken == ["baseline", "z0_gas1_tmbspg2"]
    assert take_over(store, study, store.get("old")).known == ["baseline", "z0_gas1_tmbspg2"]
    z0: optuna.Study = store.optuna_study(study, "z0")
    assert [(t.number, t.user_attrs["taken_over"]) for t in z0.trials] == [(0, "old")]
    [_, kept] = earlier_runs(store, study)
    assert kept.outcome == measured()
    assert ledger_of(store).adopt(study) is None


def test_an_own_run_that_lacked_a_mapped_flag_is_not_taken_over(store: Store) -> None:
    """An earlier version ran it as typed, and its script has another default: 7.17 times was told for 2.39."""
    size = "train_micro_batch_size_per_gpu"
    mapped = {"autotuning": {"arg_mappings": {size: "--bs"}}, "ds_config": {size: 1}}
    run_of(store, spec("old", **mapped), "baseline", replace(measured(), rows=32), part="reference")
    study, _ = store.create(spec("new", **mapped))
    why = "it was fed batches of 32 rows, where its configuration says 1 samples"
    assert take_over(store, study, store.get("old")).left == [("baseline", why)]
    typed = {**mapped, "command": f"{study.spec.command} --bs 1"}  # rows are no samples
    run_of(store, spec("as_typed", **typed), "baseline", replace(measured(), rows=32), part="reference")
    study, _ = store.create(spec("newer", **typed))
    assert take_over(store, study, store.get("as_typed")).taken == ["baseline"]
    clipped = {"autotuning": {"arg_mappings": {"gradient_clipping": "--clip"}}, "ds_config": {"gradient_clipping": 1.0}}
    run_of(store, spec("clipped", **clipped), "baseline", replace(measured(), rows=32), part="reference")
    study, _ = store.create(spec("newest", **clipped))
    assert take_over(store, study, store.get("clipped")).taken == ["baseline"]


def test_that_runs_would_meet_in_a_folder_is_taken_over_from_any_run_of_the_same_script(
    store: Store, tmp_path: Path
) -> None:
    """Nothing shows it anew: the user's own configuration, which runs alone, is not run again."""
    (tmp_path / "t.py").write_text("# saves")
    keys = {"cwd": str(tmp_path), "command": "deepspeed --num_gpus 2 t.py --deepspeed_config c.json"}
    old, new = spec("old", **keys), spec("new", **keys)
    run_of(store, old, "baseline", measured(), part="reference", sources=script_source(old))
    crashed = Failed(reason="crash", message="KeyError")
    run_of(store, old, "z0_gas1_tmbspg2", crashed, sources=script_source(old), saves_in_place=True)
    study, _ = store.create(new)
    assert take_over(store, study, store.get("old")).taken == ["baseline"]
    assert load_history(store, study).saves_in_place
    (tmp_path / "t.py").write_text("# saves no more")
    run_of(store, old, "z0_gas1_tmbspg4", measured(), sources=script_source(old))
    mended, _ = store.create(spec("mended", **keys))
    assert take_over(store, mended, store.get("old")).taken == ["z0_gas1_tmbspg4"]
    assert not load_history(store, mended).saves_in_place


def test_a_training_does_not_begin_on_what_runs_left_that_were_taken_over(store: Store, tmp_path: Path) -> None:
    old = spec("old", cwd=str(tmp_path))
    run_dir, left = RunDir.create(tmp_path / "earlier", "baseline"), tmp_path / "checkpoint-7"
    note_before(run_dir, tmp_path, [tmp_path / "earlier"])
    left.mkdir()
    (left / "model.pt").write_text("weights")
    note_after(run_dir, time.time_ns(), is_in_place=False, is_late=False)
    run_of(
        store, old, "baseline", measured(), part="reference", run_dir=str(run_dir.path), wrote_outside="checkpoint-7"
    )
    study, _ = store.create(spec("new", cwd=str(tmp_path)))
    take_over(store, study, store.get("old"))
    history = load_history(store, study)
    with pytest.raises(DsoptError, match=r"the training does not begin.*checkpoint-7 appeared or changed"):
        check_leftovers(study.spec, history, time.time(), study.spec.launch)
    shutil.rmtree(left)
    left.mkdir()
    (left / "model.pt").write_text("the user's, trained since")
    check_leftovers(study.spec, history, time.time(), study.spec.launch)
    shutil.rmtree(tmp_path / "earlier")  # now nobody knows whose it is
    with pytest.raises(DsoptError, match=r"checkpoint-7 appeared or changed"):
        check_leftovers(study.spec, history, time.time(), study.spec.launch)


@pytest.mark.parametrize(
    ("words", "file"), [("t.py", "t.py"), ("--module t", "t.py"), ("--module pack.t", "pack/t/__main__.py")]
)
def test_runs_of_another_version_of_the_script_are_left(store: Store, tmp_path: Path, words: str, file: str) -> None:
    script = tmp_path / file
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("# slow")
    keys = {"cwd": str(tmp_path), "command": f"deepspeed --num_gpus 2 {words} --deepspeed_config c.json"}
    old = spec("old", **keys)
    run_of(store, old, "baseline", measured(), part="reference", sources=script_source(old))
    script.write_text("# fast")
    os.utime(script, (0, 0))  # it was written long ago, and has just been moved here
    study, _ = store.create(spec("new", **keys))
    why = f"{file} was another one when it ran"
    assert take_over(store, study, store.get("old")).left == [("baseline", why)]
    script.write_text("# slow")
    assert take_over(store, study, store.get("old")).taken == ["baseline"]
    [kept] = earlier_runs(store, study)
    assert kept.sources == script_source(old)


def test_runs_with_another_version_of_a_module_are_left(store: Store, tmp_path: Path) -> None:
    for file in ("t.py", "model.py"):
        (tmp_path / file).write_text("# slow")
    keys = {"cwd": str(tmp_path), "command": "deepspeed --num_gpus 2 t.py --deepspeed_config c.json"}
    old = spec("old", **keys)
    run_of(store, old, "baseline", measured(), part="reference", sources=sources_now(old, ["t.py", "model.py"]))
    study, _ = store.create(spec("new", **keys))
    (tmp_path / "model.py").write_text("# fast")
    assert take_over(store, study, store.get("old")).left == [("baseline", "model.py was another one when it ran")]
    (tmp_path / "model.py").write_text("# slow")
    assert take_over(store, study, store.get("old")).taken == ["baseline"]


@pytest.mark.parametrize(
    ("bar", "keys", "nodes", "left"),
    [
        (10.0, {}, "aa", 0), (20.0, {}, "aa", 1), (10.0, {"stage_order": "sequential"}, "aa", 1),
        (10.0, {"autotuning": {"metric": "latency"}}, "aa", 1), (10.0, {}, "ab", 1),
    ],
    ids=["slower than what is there", "slower than what is not there", "in order", "another metric", "another node"],
)  # fmt: skip
def test_a_run_that_was_stopped_counts_only_beside_what_it_was_slower_than(
    bar: float, keys: dict, nodes: str, left: int
) -> None:
    best = measured()
    assert 10 < best.metric("throughput") < 20
    outcomes = [best, Slow(so_far=best, best=bar, message="")]
    runs = [
        RunToKeep(
            run=EarlierRun(
                part=Part("z0"), name=str(number), attempt=number,
                trial=optuna.trial.create_trial(value=1.0, user_attrs={"ran_on": node}),
                outcome=outcome, run_dir="", started_at=0.0, seconds=1.0,
            ),
            part=Part("z0"), candidate=str(number), params={}, distributions={},
        )
        for number, (outcome, node) in enumerate(zip(outcomes, nodes, strict=True))
    ]  # fmt: skip
    kept, others = _without_open_races(spec("new", **keys), spec("old"), runs)
    assert (len(kept), len(others)) == (2 - left, left)
