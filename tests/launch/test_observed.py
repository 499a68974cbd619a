"""Which launchers may be left out once it was seen how they start ranks."""

import pytest

from dsopt.launch.observed import is_understood
from dsopt.study.command import LaunchCommand


@pytest.mark.parametrize(
    ("typed", "understood"),
    [
        ("torchrun --nproc-per-node 2 --standalone t.py", True),
        ("torchrun --nnodes=1 --nproc_per_node gpu -m pkg.t", True),
        ("python -m torch.distributed.run --nproc_per_node 2 t.py", True),
        ("accelerate launch --use_deepspeed --zero_stage 2 --num_processes 2 t.py", True),
        ("torchrun --nnodes 2 --nproc_per_node 2 t.py", False),
        ("torchrun --nnodes 1:2 --nproc_per_node 2 t.py", False),
        ("torchrun --nproc_per_node 2 --tee 3 t.py", False),
        ("torchrun --nproc_per_node 2 --numa-binding node t.py", False),
        ("accelerate launch --num_machines 2 --num_processes 4 t.py", False),
        ("accelerate launch --use_deepspeed --enable_cpu_affinity --num_processes 2 t.py", False),
        ("deepspeed --num_gpus 2 --bind_cores_to_rank t.py", False),
    ],
)
def test_only_options_that_say_what_ranks_are_given_are_understood(typed: str, understood: bool) -> None:
    command = LaunchCommand.parse(typed, "test").with_port(20001).with_module("dsopt.probe")
    assert is_understood(command) is understood
