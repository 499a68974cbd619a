"""What a run has done to files outside its own folder is undone, whoever does it and whatever the run came to."""

from dsopt.launch.put_back import put_back
from dsopt.launch.saved import remove_saved
from dsopt.protocol.run_dir import RunDir


def undo(run_dir: RunDir) -> None:
    """Removes what the run has saved, and puts back what it moved. Its processes on this machine are gone."""
    remove_saved(run_dir)
    put_back(run_dir)
