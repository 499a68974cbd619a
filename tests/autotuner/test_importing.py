"""Results of DeepSpeed's own autotuner in a study, on both databases: nothing of them is measured again."""

import json
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
import sqlalchemy as sa
from optuna.trial import TrialState

from dsopt.autotuner.candidate_of import NotInSpace
from dsopt.autotuner.imported import ImportedTrial, _frozen, keep_imported
from dsopt.autotuner.importing import _trial
from dsopt.autotuner.results import read_results
from dsopt.search.sampler import distributions
from dsopt.store.keeping import keep_unclaimed
from dsopt.store.studies import Store
from dsopt.store.transactions import changing
from dsopt.study.part import Part
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from tests.conftest import SCRIPTS, Dsopt
from tests.deepspeed_results import OOM, write_experiment, write_profile
from tests.made_up import facts
from tests.made_up import history as made_up_history
from tests.store.ledger import ledger_of
from tests.studies import check_nothing_lost_nothing_doubled, write_study

IMPORTED = ["z0_gas1_tmbspg16", "z0_gas1_tmbspg4", "z0_gas1_tmbspg8", "z1_gas1_tmbspg16", "z1_gas1_tmbspg8"]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A run of DeepSpeed's autotuner on the study of these tests; its figures are 20 % too good."""
    folder = tmp_path / "deepspeed_results"
    write_profile(folder)
    for stage, factor in ((0, 1.0), (1, 0.9)):
        for size in (4, 8, 16) if stage == 0 else (8, 16):
            write_experiment(folder, stage, size, 1.2 * 2 * size / ((0.010 + 0.001 * size) * factor))
    write_experiment(folder, 0, 5, 100.0, gas=3)
    return folder


@pytest.mark.slow
def test_an_imported_candidate_is_never_measured_in_the_search(dsopt: Dsopt, results: Path) -> None:
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    output = dsopt("import", "deepspeed_results", "simulated")
    assert "Imported into study 'simulated' (5):" in output
    assert "gradient_accumulation_steps is 3; the study tries 1" in output
    assert "Continue with: dsopt worker simulated" in output

    before = count_rows(dsopt)
    again = dsopt.json("import", "deepspeed_results", "simulated")
    assert again["taken"] == []
    assert [known["candidate"] for known in again["known"]] == IMPORTED
    assert count_rows(dsopt) == before

    shown = dsopt("study", "show", "simulated", "--why")
    assert shown.splitlines().count("imported from DeepSpeed's autotuner, not measured here") == len(IMPORTED)
    assert "ZeRO 1 · 16 × 1  z1_gas1_tmbspg16" in shown

    dsopt("worker", "simulated", "--devices", "cpu:2")
    check_nothing_lost_nothing_doubled(dsopt)
    state = dsopt.json("study", "show", "simulated")
    assert [trial["candidate"] for trial in state["imported_trials"]] == IMPORTED
    searched = {run["candidate"] for run in state["runs"] if run["round"] == 0}
    assert not searched & set(IMPORTED)
    # the result is from runs of ours alone: 32 samples in 23.4 ms against 8 in 14 ms
    best = dsopt.json("study", "best", "simulated")["comparison"]
    assert best["best"] == "z1_gas1_tmbspg16"
    assert best["speedup"] == pytest.approx((32 / 0.0234) / (8 / 0.014), rel=0.01)
    assert best["value"] == pytest.approx(32 / 0.0234, rel=0.01)
    summary = (dsopt.cwd / "autotuning_results" / "summary.txt").read_text()
    [line] = [line for line in summary.splitlines() if line.startswith("Imported from DeepSpeed's autotuner, not")]
    ran = {run["candidate"] for run in state["runs"]} - {"baseline"}
    assert "ZeRO 0 · 4 × 1" not in line  # it is the user's own
    assert line.count(" × ") == len(set(IMPORTED) - ran) - 1
    refused = dsopt("import", "deepspeed_results", "simulated", code=1)
    assert "study 'simulated' is finished" in refused


@pytest.mark.slow
def test_of_a_space_that_was_imported_whole_the_best_is_measured_without_rounds(dsopt: Dsopt, results: Path) -> None:
    """The user's own configuration was called the fastest, though another was 3.49 times as fast."""
    sizes = {"train_micro_batch_size_per_gpu": [4, 8, 16], "zero_optimization": {"stage": [0, 1]}}
    write_study(dsopt.cwd, ds_config=sizes, confirmation=None)
    write_experiment(results, 1, 4, 1.2 * 8 / (0.014 * 0.9))
    dsopt("study", "create", "study.yaml")
    assert "dsopt measures here what may be the best of them" in dsopt("import", "deepspeed_results", "simulated")
    output = dsopt("worker", "simulated", "--devices", "cpu:2")
    best = dsopt.json("study", "best", "simulated")["comparison"]
    assert best["best"] == "z1_gas1_tmbspg16"
    assert best["speedup"] == pytest.approx((32 / 0.0234) / (8 / 0.014), rel=0.02)
    assert "ZeRO 1 · 16 × 1" in output
    shown = dsopt("study", "show", "simulated", "--why")
    assert "imported from DeepSpeed's autotuner, and measured here" in shown
    assert "chosen: a run here gains" in shown
    assert "% better than the same runs are here" in shown


def count_rows(dsopt: Dsopt) -> tuple[int, ...]:
    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    with store.engine.connect() as connection:
        counts = [
            connection.execute(sa.text(f"SELECT count(*) FROM {table}")).scalar_one()
            for table in ("dsopt_claims", "dsopt_attempts", "trials", "trial_user_attributes")
        ]
    store.close()
    return tuple(counts)


@pytest.mark.slow
def test_out_of_memory_is_knowledge_here_too(dsopt: Dsopt, results: Path) -> None:
    """The simulated device would take 32 samples; what ran out of memory there is not tried, nor what is larger."""
    write_study(dsopt.cwd, autotuning={"num_tuning_micro_batch_sizes": 1}, measurement={"max_steps": 20})
    write_experiment(results, 0, 20, None, stderr=OOM)
    dsopt("study", "create", "study.yaml")
    assert "z0_gas1_tmbspg20  out of memory" in dsopt("import", "deepspeed_results", "simulated")
    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    [pruned] = store.optuna_study(store.get("simulated"), "z0").get_trials(states=(TrialState.PRUNED,))
    assert (pruned.user_attrs["reason"], pruned.user_attrs["phase"]) == ("oom", "range")
    assert pruned.constraints == {"fits": 1.0}
    store.close()
    dsopt("worker", "simulated", "--devices", "cpu:2")
    runs = dsopt.json("study", "show", "simulated")["runs"]
    sizes = {int(run["candidate"].rpartition("tmbspg")[2]) for run in runs if run["stage"] == "z0"}
    assert max(sizes, default=0) < 20


@pytest.mark.parametrize(("metric", "value"), [("latency", 8 / 100 * 1000), ("FLOPS", 1e11)])
def test_figures_are_kept_in_the_studys_metric(dsopt: Dsopt, metric: str, value: float) -> None:
    write_study(dsopt.cwd, autotuning={"metric": metric})
    write_experiment(dsopt.cwd / "r", 0, 4, 100.0)
    folder = write_experiment(dsopt.cwd / "r", 1, 4, 100.0)
    (folder / "metrics.json").write_text('{"throughput": 100.0}')
    dsopt("study", "create", "study.yaml")
    imported = dsopt.json("import", "r", "simulated")
    [taken] = imported["taken"]
    assert taken["value"] == pytest.approx(value)
    assert imported["passed_over"][0]["why"] == f"its metrics.json has no figure for the study's metric, {metric}"


def test_knobs_of_the_full_mode_are_imported_and_searched_with(dsopt: Dsopt) -> None:
    write_study(dsopt.cwd, autotuning={"fast": False, "tuner_type": "gridsearch", "tuner_num_trials": 2})
    (dsopt.cwd / "ds.json").write_text(
        json.dumps({"train_micro_batch_size_per_gpu": [4], "zero_optimization": {"stage": [1, 3]}})
    )
    buckets = {"reduce_bucket_size": 5e7, "allgather_bucket_size": 1e9}
    write_experiment(dsopt.cwd / "r", 1, 4, 700.0, zero=buckets, name="z1_rbs5e+07_abs1e+09_gas1_tmbspg4")
    same = {**buckets, "allgather_bucket_size": 5e7}  # DeepSpeed reads no allgather_bucket_size
    write_experiment(dsopt.cwd / "r", 1, 4, 710.0, zero=same, name="z1_rbs5e+07_abs5e+07_gas1_tmbspg4")
    write_experiment(dsopt.cwd / "r", 3, 4, 700.0)
    dsopt("study", "create", "study.yaml")
    imported = dsopt.json("import", "r", "simulated")
    [taken], [passed_over] = imported["taken"], imported["passed_over"]
    assert taken["candidate"] == "z1_rbs5e+07_gas1_tmbspg4"
    assert "the choices at ZeRO 3 depend on the model's hidden size" in passed_over["why"]
    dsopt("worker", "simulated", "--devices", "cpu:2")
    runs = dsopt.json("study", "show", "simulated")["runs"]
    searched = {run["candidate"] for run in runs if run["round"] == 0}
    assert len([name for name in searched if name.startswith("z1_")]) >= 1
    assert taken["candidate"] not in searched


def test_an_interrupted_import_goes_on_where_it_stopped(storage_url: str) -> None:
    """A trial and its claim are written at once, so an interruption leaves neither of them."""
    store = Store.open(storage_url, make=True)
    command = "deepspeed --num_gpus 2 t.py --deepspeed_config c.json"
    spec = StudySpec.model_validate({"name": "s", "command": command, "cwd": "/", "ds_config": {}})
    study, _ = store.create(spec)

    def imported(size: int) -> ImportedTrial:
        candidate = Candidate(stage=0, micro_batch=size, gas=1)
        return ImportedTrial(
            part=Part("z0"), candidate=candidate.name, params=candidate.params,
            distributions=distributions(spec.space(0)), value=1.0, message="", source="/r",
        )  # fmt: skip

    def interrupt(_connection: object, _run: ImportedTrial, number: int) -> None:
        if number == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        keep_unclaimed(store, study, [imported(2), imported(4)], _frozen, interrupt)
    assert keep_imported(store, study, [imported(2), imported(4), imported(4)]) == [imported(4)]
    z0: optuna.Study = store.optuna_study(study, "z0")
    assert [(t.number, t.value, t.user_attrs["imported"]) for t in z0.trials] == [(0, 1.0, "/r"), (1, 1.0, "/r")]
    assert ledger_of(store).adopt(study) is None
    store.close()


def _finish(dsopt: Dsopt) -> None:
    write_experiment(dsopt.cwd / "r", 0, 4, 100.0)
    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    with changing(store.engine, store.get("simulated").id, state="finished"):
        pass
    store.close()


def _empty(dsopt: Dsopt) -> None:
    (dsopt.cwd / "r").mkdir()


def _experiment(**keys: object) -> Callable[[Dsopt], None]:
    return lambda dsopt: write_experiment(dsopt.cwd / "r", 0, 4, 100.0, **keys) and None


def _of_dsopt(dsopt: Dsopt) -> None:
    folder = write_experiment(dsopt.cwd / "r", 0, 4, 100.0)
    content = json.loads((folder / "exp.json").read_text())
    (folder / "exp.json").write_text(json.dumps({**content, "round": 0}))


@pytest.mark.parametrize(
    ("prepare", "args", "code", "message"),
    [
        (None, ["missing", "simulated"], 1, "missing: no such folder. Expected the results_dir"),
        (None, ["ds.json", "simulated"], 1, "ds.json: is a file"),
        (_empty, ["r", "simulated"], 1, "r: contains no experiment"),
        (_experiment(), ["r/z0_gas1_tmbspg4", "simulated"], 1, "This is one experiment: give the folder that it is in"),
        (_experiment(), ["r", "simulatde"], 1, "Did you mean 'simulated'"),
        (_experiment(), ["r"], 2, "Missing argument 'STUDY'"),
        (_experiment(), ["r", "simulated", "--storage", "sqlite:///none.db"], 1, "there is no study yet"),
        (_finish, ["r", "simulated"], 1, "study 'simulated' is finished"),
        (_of_dsopt, ["r", "simulated"], 0, "is a run of dsopt, not of DeepSpeed's autotuner"),
        (_experiment(num_gpus=4), ["r", "simulated"], 0, "it ran on 4 GPUs per node; the study's command uses 2"),
        (_experiment(script="other.py"), ["r", "simulated"], 0, "it ran other.py; the study's command runs train.py"),
        (_experiment(config={"bf16": {"enabled": True}}), ["r", "simulated"], 0, "bf16.enabled is true; in the study"),
    ],
)
def test_wrong_inputs_change_nothing(
    dsopt: Dsopt, prepare: Callable[[Dsopt], None] | None, args: list[str], code: int, message: str
) -> None:
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    if prepare is not None:
        prepare(dsopt)
    before = count_rows(dsopt)
    output = dsopt("import", *args, code=code)
    assert message in output
    assert "Traceback" not in output
    if code == 0:
        assert "Nothing new was imported." in output
    assert count_rows(dsopt) == before


def test_a_study_that_keeps_the_batch_takes_results_once_it_is_known(dsopt: Dsopt) -> None:
    write_study(dsopt.cwd, global_batch="keep")
    write_experiment(dsopt.cwd / "r", 1, 4, 100.0)
    write_experiment(dsopt.cwd / "r", 1, 8, 100.0)
    dsopt("study", "create", "study.yaml")
    before = dsopt("import", "r", "simulated")
    assert before.count("which no run has shown: import again after one has") == 2
    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    spec, history = store.get("simulated").spec, made_up_history(baseline=facts(micro_batch=4))
    store.close()
    experiments, _ = read_results(dsopt.cwd / "r")
    taken = {one.name: _trial(spec, history, one) for one in experiments}
    assert isinstance(taken["z1_gas1_tmbspg4"], ImportedTrial)
    assert isinstance(other := taken["z1_gas1_tmbspg8"], NotInSpace)
    assert other.why == "the study keeps your global batch, and its own is another one"


def test_a_stopped_study_takes_results_and_says_how_to_go_on(dsopt: Dsopt) -> None:
    write_study(dsopt.cwd, command=f"{SCRIPTS / 'deepspeed'} train.py --deepspeed_config ds.json")
    write_experiment(dsopt.cwd / "r", 0, 4, 100.0)
    dsopt("study", "create", "study.yaml")
    dsopt("study", "stop", "simulated")
    output = dsopt("import", "r", "simulated")
    assert "does not say how many GPUs it uses" in output
    assert "Continue with: dsopt study resume simulated, then dsopt worker simulated" in output
