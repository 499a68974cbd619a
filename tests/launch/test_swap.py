"""The folders that a run offloads to."""

from pathlib import Path

import pytest

from dsopt.errors import DsoptError
from dsopt.launch.swap import give_own_swap, remove_swap
from dsopt.protocol.run_dir import RunDir


def config_with(path: object) -> dict:
    return {"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": path}}}


def test_a_run_has_a_folder_of_its_own_which_goes_with_it(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path, "run")
    config = config_with("disk")
    give_own_swap(config, run_dir, 7, tmp_path)
    folder = Path(config["zero_optimization"]["offload_param"]["nvme_path"])
    assert folder == tmp_path / "disk" / "dsopt-swap-run-7"
    assert folder.is_dir()
    run_dir.write_json(run_dir.ds_config, config)
    remove_swap(run_dir.path)
    assert (tmp_path / "disk").is_dir()
    assert not folder.exists()


@pytest.mark.parametrize("path", ["file", "file/below", "nul\0l", 3])
def test_a_disk_that_cannot_be_used_is_named(tmp_path: Path, path: object) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DsoptError, match=r"nvme_path: cannot use .*: "):
        give_own_swap(config_with(path), RunDir.create(tmp_path, "run"), 1, tmp_path)
