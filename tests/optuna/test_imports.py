"""What importing costs."""

import subprocess
import sys


def test_dsopt_is_light_and_its_optuna_classes_bring_nothing_else_of_it():
    code = """
import sys
import dsopt
assert "optuna" not in sys.modules
import dsopt.optuna
ours = {name for name in sys.modules if name.startswith("dsopt.") and not name.startswith("dsopt.optuna")}
assert ours <= {"dsopt.errors", "dsopt.version"}, ours
assert not {"xgboost", "torch", "scipy.optimize", "scipy.stats"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
