"""The memory that a rank may use of its node."""

from pathlib import Path

import pytest

from dsopt.probe.host import cgroup_limits, host_memory_bytes

GIB = 2**30


@pytest.mark.parametrize(
    ("groups", "files", "least"),
    [
        ("0::/", {"memory.max": 8}, 8),
        ("0::/", {"memory.max": None}, None),
        ("0::/system.slice/slurm/job_7/step_0", {"system.slice/slurm/job_7/memory.max": 4, "memory.max": 8}, 4),
        ("0::/a/b", {"a/b/memory.max": 6, "a/memory.max": 2}, 2),  # whoever is around limits, too
        ("9:cpu:/x\n4:memory:/job/step\n0::/", {"memory/job/memory.limit_in_bytes": 3, "memory.max": 8}, 3),
        ("4:cpu,memory:/", {"memory/memory.limit_in_bytes": 5}, 5),
        # a container that sees the node's path, and only its own group's files
        ("4:memory:/docker/0123", {"memory/memory.limit_in_bytes": 7}, 7),
        ("0::/../../elsewhere", {"memory.max": 9}, 9),
        ("5:cpu:/only", {}, None),
    ],
)
def test_the_least_limit_of_all_groups_holds(
    tmp_path: Path, groups: str, files: dict[str, int | None], least: int | None
) -> None:
    listing, root = tmp_path / "cgroup", tmp_path / "fs"
    listing.write_text(groups + "\n")
    for name, limit in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("max\n" if limit is None else f"{limit * GIB}\n")
    limits = list(cgroup_limits(listing, root))
    assert min(limits, default=None) == (None if least is None else least * GIB)


def test_this_node_has_memory() -> None:
    assert 2**28 < host_memory_bytes() < 2**50
