"""The defaults that dsopt reckons with are those of the DeepSpeed that is installed."""

import json
import subprocess
import sys

from dsopt.study.ds_defaults import zero_defaults

_ASK = """
import json, sys
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
told = [DeepSpeedZeroConfig(stage=stage).model_dump(by_alias=True) for stage in range(4)]
keys = json.loads(sys.argv[1])
print(json.dumps([{key: section[key] for key in keys} for section in told]))
"""


def test_defaults_are_those_of_the_installed_deepspeed() -> None:
    keys = json.dumps(list(zero_defaults(0)))
    said = subprocess.run([sys.executable, "-c", _ASK, keys], capture_output=True, text=True, check=True).stdout
    for stage, told in enumerate(json.loads(said.splitlines()[-1])):
        assert zero_defaults(stage) == told
