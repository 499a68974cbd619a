"""A comparison's parts: what it runs with and without DeepSpeed, the order of its runs, its table."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import dsopt as api
from dsopt.api.compared_runs import compared_runs
from dsopt.api.so_far import best_so_far
from dsopt.autotuner.results import chosen_config
from dsopt.errors import DsoptError
from dsopt.experiment.plain import plain_contradiction
from dsopt.experiment.seen import Seen
from dsopt.launch.devices import DevicePool
from dsopt.protocol.events import Engine
from dsopt.report.compare import comparison_table
from dsopt.search.history import History
from dsopt.study.compared import ComparedRun
from dsopt.study.comparison import comparison_spec, configured_run, plain_sizes, spec_of_run, vanilla_run
from dsopt.study.ds_schema import installed_schema
from dsopt.study.spec import StudySpec
from tests.api.dry import dry_run
from tests.deepspeed_results import write_experiment
from tests.machines import Machine
from tests.made_up import facts, history, observation
from tests.made_up import spec as study_spec
from tests.runs import launch

TRAINER = {"train_micro_batch_size_per_gpu": "--bs", "gradient_accumulation_steps": "--gas"}


def of(command: str, ds_config: dict | None = None, **autotuning: object) -> StudySpec:
    content = study_spec(ds_config, **autotuning).model_dump(exclude_unset=True)
    return StudySpec.model_validate({**content, "command": command})


def comparison(*names: str, rounds: int = 2, **autotuning: object) -> StudySpec:
    """One of these runs; those named `vanilla` are without DeepSpeed."""
    spec = study_spec(**autotuning)
    runs = [
        ComparedRun(name=name, command=spec.command, **({} if name == "vanilla" else {"ds_config": {}}))
        for name in names
    ]
    return comparison_spec(spec, "s-compare", runs, rounds)


@pytest.mark.parametrize(
    ("command", "vanilla"),
    [
        ("deepspeed --num_gpus 2 t.py --deepspeed c.json --lr 1", "deepspeed --num_gpus 2 t.py --lr 1 --bs 1"),
        ("deepspeed t.py --deepspeed_config=c.json --bs 4", "deepspeed t.py --bs 1"),
        ("deepspeed t.py --deepspeed --deepspeed_config c.json data", "deepspeed t.py data --bs 1"),
        ("torchrun --nproc_per_node 2 t.py --bs=3 --deepspeed c.json", "torchrun --nproc_per_node 2 t.py --bs=1"),
        (
            "accelerate launch --use_deepspeed --deepspeed_config_file c.json --num_processes 2 t.py",
            "accelerate launch --num_processes 2 t.py --bs 1",
        ),
        ("accelerate launch --config_file a.yaml --num_processes 2 t.py", None),
    ],
)
def test_vanilla_is_the_command_without_deepspeed(command: str, vanilla: str | None) -> None:
    """The configuration says a micro-batch size of 1, which the flag then has to say, too."""
    run = vanilla_run(of(command, arg_mappings=TRAINER))
    assert (run.command if run else None) == vanilla


@pytest.mark.parametrize(
    ("config", "arguments"),
    [
        ({"train_micro_batch_size_per_gpu": 6}, "--bs 6 --gas 2"),
        ({"train_micro_batch_size_per_gpu": 6, "gradient_accumulation_steps": 3}, "--bs 6 --gas 3"),
        ({"train_micro_batch_size_per_gpu": "auto"}, "--bs 4 --gas 2"),
        ({"train_micro_batch_size_per_gpu": 6, "autotuning": {"enabled": True}}, "--bs 6 --gas 2"),
    ],
)
def test_flags_follow_a_configuration_that_is_given(config: dict, arguments: str) -> None:
    spec = of("deepspeed --num_gpus 2 t.py --deepspeed c.json --bs 4 --gas 2", arg_mappings=TRAINER)
    run, _ = configured_run(spec, "mine", config, "mine.json", installed_schema())
    assert run.command.endswith(f"--deepspeed c.json {arguments}")
    assert run.ds_config == {key: value for key, value in config.items() if key != "autotuning"}
    ran = spec_of_run(comparison_spec(spec, "c", [run], None), "mine")
    assert (str(ran.launch), ran.ds_config) == (run.command, run.ds_config)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"train_micro_batch_size_per_gpu": [1, 2]}, r"mine.json: train_micro_batch_size_per_gpu: \[1, 2\]. Exp"),
        ({"zero_optimization": {"stage": [1, 2]}}, "zero_optimization.stage"),
        ({"zero_optimization": {"overlap_comm": [True, False]}}, "zero_optimization.overlap_comm"),
        ({"zero_optimisation": {}}, "Did you mean 'zero_optimization'"),
        ({"train_batch_size": 5, "train_micro_batch_size_per_gpu": 2}, "is not a multiple"),
    ],
)  # fmt: skip
def test_what_cannot_be_one_configuration_is_refused(config: dict, says: str) -> None:
    with pytest.raises(DsoptError, match=says):
        configured_run(study_spec(), "mine", config, "mine.json", installed_schema())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("mine", "expected NAME=WHAT"),
        ("yours=x.json", "dsopt calls one of its own runs"),
        ("a/b=x.json", "is not a valid name"),
        ("mine=nowhere.json", "nowhere.json: no such file"),
        ("mine=python train.py", "--with mine: starts with 'python'"),
    ],
)
def test_what_with_does_not_take_is_said(given: str, says: str) -> None:
    with pytest.raises(DsoptError, match=says):
        compared_runs(study_spec(), [given], None)


def test_a_name_stands_for_one_configuration() -> None:
    with pytest.raises(DsoptError, match="comparison 's-compare': compare: 'mine' names two configurations"):
        comparison("mine", "mine")


def test_what_is_given_takes_the_place_of_what_is_derived(tmp_path: Path) -> None:
    """A file, a folder and whole commands with and without DeepSpeed; `vanilla` comes first in the table."""
    (tmp_path / "t.py").touch()
    config = tmp_path / "b.json"
    config.write_text('{"train_micro_batch_size_per_gpu": 3}')
    spec = StudySpec.model_validate({**study_spec().model_dump(exclude_unset=True), "cwd": str(tmp_path)})
    given = [f"mine={config}", f"other=torchrun t.py --deepspeed {config}", "vanilla=torchrun t.py --plain"]
    runs, warnings = compared_runs(spec, given, None)
    assert [(run.name, run.ds_config is None) for run in runs] == [
        ("vanilla", True), ("mine", False), ("other", False)
    ]  # fmt: skip
    assert runs[0].command == "torchrun t.py --plain"
    assert runs[2].ds_config == {"train_micro_batch_size_per_gpu": 3}
    assert warnings == []
    derived, _ = compared_runs(spec, [], None)
    assert [run.command for run in derived] == ["deepspeed --num_gpus 2 t.py"]


def test_the_choice_of_deepspeeds_autotuner(tmp_path: Path) -> None:
    """Its optimal configuration where it wrote one, else that of its best experiment."""
    for size, throughput in ((2, 10.0), (4, 30.0), (8, 20.0)):
        write_experiment(tmp_path, 0, size, throughput)
    config, where = chosen_config(tmp_path, "throughput", maximize=True)
    assert (config["train_micro_batch_size_per_gpu"], Path(where).name) == (4, "z0_gas1_tmbspg4")
    (tmp_path / "ds_config_optimal.json").write_text(json.dumps({"train_micro_batch_size_per_gpu": 8}))
    assert chosen_config(tmp_path, "throughput", maximize=True)[0] == {"train_micro_batch_size_per_gpu": 8}


@pytest.mark.parametrize(
    ("arguments", "ds_config", "sizes"),
    [
        ("--bs 4 --gas 2", {}, (4, 2)),
        ("--bs 4", {}, (4, 1)),
        ("", {}, (0, 1)),  # of the batch, as it is fed
        ("", {"gradient_accumulation_steps": 8}, (0, 8)),
    ],
)
def test_sizes_of_a_run_without_deepspeed(arguments: str, ds_config: dict, sizes: tuple[int, int]) -> None:
    spec = of("deepspeed --num_gpus 2 t.py --deepspeed c.json", ds_config, arg_mappings=TRAINER)
    vanilla = ComparedRun(name="vanilla", command=f"torchrun t.py {arguments}")
    made = comparison_spec(spec, "c", [vanilla], None)
    assert plain_sizes(made, "vanilla") == sizes
    assert plain_sizes(made, "baseline") is None


@pytest.mark.parametrize(
    ("changes", "rows", "says"),
    [
        ({}, 4, None),
        ({}, 0, None),
        ({}, 1, None),  # may be a packed batch
        ({"framework": "deepspeed"}, 4, "still calls deepspeed.initialize"),
        ({"world_size": 1}, 4, "2 ranks were started, but they train in process groups of 1"),
        ({}, 8, "fed batches of 8, but its command says 4"),
        ({"gas": 3}, 4, "did 3 forward passes in an optimizer step, but the accumulation is 1"),
    ],
)
def test_a_run_without_deepspeed_is_what_its_command_says(
    tmp_path: Path, changes: dict, rows: int, says: str | None
) -> None:
    values = {"rank": 0, "world_size": 2, "num_params": 1, "trainable_params": 1, "device": "cpu",
              "device_memory_bytes": 1, "zero_stage": 0, "micro_batch": 4, "gas": 1, "dtype": "fp32",
              "framework": "torch"}  # fmt: skip
    started = launch("torchrun --nproc_per_node 2 t.py", plain=(4, 1))
    wrong = plain_contradiction(Seen(engines={0: Engine(**{**values, **changes})}, rows=rows), started)
    assert wrong is None if says is None else says in (wrong.message if wrong else "")


def test_a_micro_batch_size_that_nothing_says_is_no_figure(tmp_path: Path) -> None:
    engine = Engine(rank=0, world_size=1, num_params=1, trainable_params=1, device="cpu", device_memory_bytes=1,
                    zero_stage=0, micro_batch=1, gas=1, dtype="fp32", framework="torch")  # fmt: skip
    started = launch("torchrun t.py", devices=DevicePool(kind="cpu", indices=(0,)), plain=(0, 1))
    wrong = plain_contradiction(Seen(engines={0: engine}, rows=1), started)
    assert wrong is not None
    assert "is unknown" in wrong.message
    wrong = plain_contradiction(Seen(engines={0: replace(engine, micro_batch=64)}, rows=4), started)
    assert wrong is not None
    assert "its first batch had 64 rows, and most others have 4" in wrong.message


class Comparing(Machine):
    """A machine that runs a comparison: `figures` gives the metric of each run, or the reason that it fails."""

    def __init__(self, spec: StudySpec, figures: dict[str, float | str]) -> None:
        super().__init__(spec, lambda _: 0.0)
        self.figures = figures

    def observe(self, name: str, round_: int, candidate: object, phase: str):
        figure = self.figures[name]
        if isinstance(figure, str):
            return observation(None, None, name=name, round=round_, state="failed", reason=figure, message="it broke")
        slower = 1 + 0.001 * round_  # which hits all alike
        return observation(None, figure * slower, name=name, round=round_, half_width=0.01, facts=facts(zero_stage=1))


def ran(machine: Machine) -> list[tuple[str, int]]:
    return [(o.name, o.round) for o in machine.reference]


def test_all_are_measured_in_turn_and_every_other_round_backwards() -> None:
    machine = Comparing(comparison("vanilla", "mine", rounds=3), {"baseline": 10, "vanilla": 5, "mine": 20}).run()
    forth = ["baseline", "vanilla", "mine"]
    assert [name for name, _ in ran(machine)] == [*forth, *reversed(forth), *forth]
    assert [round_ for _, round_ in ran(machine)] == [1] * 3 + [2] * 3 + [3] * 3


def test_what_fails_is_launched_once_and_the_rest_goes_on() -> None:
    machine = Comparing(comparison("vanilla", "mine"), {"baseline": "crash", "vanilla": "crash", "mine": 20}).run()
    assert ran(machine) == [("baseline", 1), ("vanilla", 1), ("mine", 1), ("mine", 2)]
    assert Comparing(comparison("mine"), {"baseline": "oom", "mine": "oom"}).run().message == ""


@pytest.mark.parametrize(("metric", "factor"), [("throughput", 2.0), ("latency", 0.5)])
def test_the_table_of_a_comparison(metric: str, factor: float) -> None:
    spec = comparison("vanilla", "mine", metric=metric)
    machine = Comparing(spec, {"baseline": 10, "vanilla": "crash", "mine": 20}).run()
    table = comparison_table(spec, machine.history, "finished")
    vanilla, yours, mine = table.rows
    assert (vanilla.name, vanilla.value, vanilla.reason) == (
        "vanilla", None, "does not run without DeepSpeed: it broke"
    )  # fmt: skip
    assert (yours.name, mine.name, table.reference) == ("yours", "mine", "yours")
    assert mine.value == pytest.approx(20, rel=0.01)
    assert mine.interval is not None
    assert mine.interval[0] < mine.value < mine.interval[1]
    assert mine.factor is not None
    assert mine.factor.factor == pytest.approx(factor)
    assert (table.fastest, mine.runs) == ("mine" if factor > 1 else "yours", 2)
    text = table.text()
    assert "| vanilla       | no        | does not run |" in text
    assert "\nvanilla: does not run without DeepSpeed: it broke\n" in text
    assert "(z = 1, mbs = 1)" in text
    assert "Based on 4 launches, alternating all configurations that run in each of 2 rounds." in text
    assert json.dumps(table.to_json())


def test_what_fails_in_a_later_round_is_not_called_the_fastest() -> None:
    spec = comparison("mine", "more", rounds=2)
    history = Comparing(spec, {"baseline": 10, "mine": 20, "more": 15}).run().history
    broken = [
        replace(o, state="failed", reason="crash", message="it broke", value=None, facts=None)
        if (o.name, o.round) == ("mine", 2)
        else o
        for o in history.reference
    ]
    table = comparison_table(spec, replace(history, reference=broken, learnt={}), "finished")
    assert "mine: not launched again after round 2: does not run: it broke" in table.text()
    assert table.fastest == "more" and "more is" in table.text() and "mine is" not in table.text()
    alone = comparison_table(comparison("mine", rounds=2), replace(history, reference=broken, learnt={}), "finished")
    assert alone.fastest == "yours" and "likely to be the fastest" not in alone.text()


def test_without_yours_factors_are_relative_to_the_first_that_runs() -> None:
    spec = comparison("vanilla", "mine", "more")
    figures = {"baseline": "crash", "vanilla": "oom", "mine": 20, "more": 30}
    table = comparison_table(spec, Comparing(spec, figures).run().history, "finished")
    assert table.reference == "mine"
    assert "vanilla: out of memory: it broke" in table.text()
    assert "Your own configuration does not run, so factors are relative to mine." in table.text()
    more = table.rows[-1].factor
    assert more is not None
    assert more.factor == pytest.approx(1.5)


def test_a_table_of_nothing_says_so() -> None:
    spec = comparison("mine")
    assert "not run yet" in comparison_table(spec, History(reference=[], stages={}), "created").text()
    failed = Comparing(spec, {"baseline": "oom", "mine": "oom"}).run()
    assert comparison_table(spec, failed.history, "finished").text().endswith("No configuration could be measured.")


def test_what_failed_later_keeps_its_figure_and_says_when() -> None:
    spec = comparison("mine")
    machine = Comparing(spec, {"baseline": 10, "mine": 20})
    machine.reference = [machine.observe(name, 1, None, "range") for name in ("baseline", "mine")]
    machine.figures["mine"] = "crash"
    table = comparison_table(spec, machine.run().history, "finished")
    assert table.rows[1].runs == 1
    assert table.rows[1].reason == "not launched again after round 2: does not run: it broke"


def test_a_mapped_switch_and_isolated_flags_are_those_of_the_configuration_and_the_study() -> None:
    """Vanilla trains in the precision that your configuration says; nothing of an experiment is the user's."""
    mapped = {"bf16.enabled": "--bf16"}
    spec = of("deepspeed --num_gpus 2 t.py --deepspeed c.json", {"bf16": {"enabled": True}}, arg_mappings=mapped)
    spec = StudySpec.model_validate({**spec.model_dump(exclude_unset=True), "isolate": ["--runs"]})
    vanilla = vanilla_run(spec)
    assert vanilla is not None
    assert vanilla.command == "deepspeed --num_gpus 2 t.py --bf16"
    assert comparison_spec(spec, "c", [vanilla], None).isolate == ["--runs"]


def test_dsopts_best_of_a_study_is_compared() -> None:
    found = history(value=100.0)
    runs, _ = compared_runs(study_spec(), [], found)
    assert [run.name for run in runs] == ["vanilla", "dsopt"]
    own = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 0}}  # with the stage that it leaves open
    assert runs[-1].ds_config == own  # nothing was found that is faster


def test_dry_runs_are_compared_and_say_so(tmp_path: Path, sqlite_url: str) -> None:
    study = api.create_study(dry_run(tmp_path), storage=sqlite_url)
    study.run("cpu:1")
    (tmp_path / "mine.json").write_text('{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}')
    asked = {"study": "dry", "devices": "cpu:1", "storage": sqlite_url, "rounds": 1}
    table = api.compare(given={"mine": tmp_path / "mine.json"}, **asked)
    assert [(row.name, row.micro_batch, row.value is not None) for row in table.rows][:2] == [
        ("yours", 2, True),
        ("mine", 1, True),
    ]
    assert "This is a dry run: " in table.text()
    with pytest.raises(DsoptError, match=f"'{table.study}' is a comparison, not a search"):
        best_so_far(api.load_study(table.study, storage=sqlite_url))
    (tmp_path / "train.py").write_text("")
    with pytest.raises(DsoptError, match="simulates DeepSpeed alone"):
        api.compare(given={"plain": "torchrun --nproc_per_node 2 train.py"}, name="other", **asked)
