"""The example of docs/optuna.md."""

import re
from pathlib import Path

import optuna
from optuna.trial import TrialState

PAGE = Path(__file__).parents[2] / "docs" / "optuna.md"


def test_the_example_of_the_documentation_runs_and_finds_a_good_one(capsys):
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = {"__name__": "example"}
    exec(compile(code, str(PAGE), "exec"), names)
    study = names["study"]
    assert isinstance(study, optuna.Study)
    assert study.best_params["precision"] == "bf16"
    assert study.best_value > 0.9 * names["train"](140, 6, "bf16")[0]
    assert "batch_size" in capsys.readouterr().out
    ran_out = [t for t in study.trials if t.state == TrialState.PRUNED and t.constraints]
    assert len(ran_out) < 8
