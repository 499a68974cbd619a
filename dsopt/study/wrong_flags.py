"""What a script gets that its own parser does not take, or lacks; only where its source alone tells."""

from typing import Final

from dsopt.study.command import LaunchCommand
from dsopt.study.documents import nearest
from dsopt.study.mapped_flags import is_ever_set, with_own_flags
from dsopt.study.script_flags import same_flag
from dsopt.study.script_parser import OF_DEEPSPEED, flags_of_script, given_flags, is_meant
from dsopt.study.spec import StudySpec

_LOCAL_RANK: Final = "--local_rank"
_LAUNCHED_HERE: Final = (None, "pdsh")  # values of --launcher whose ranks the deepspeed launcher starts itself


def wrong_flags(spec: StudySpec) -> list[tuple[str, str]] | None:
    """What the script gets that its parser does not take, or lacks. It reads the source, and starts nothing.

    Returns:
        What is wrong and what helps, if that is known; None if the source alone does not tell.
    """
    command, known = spec.launch, flags_of_script(spec)
    if known is None:
        return None
    found = []
    own, mappings = [*given_flags(with_own_flags(spec, command))], spec.autotuning.arg_mappings
    set_for_candidates = (flag for path, flag in mappings.items() if is_ever_set(spec, path))
    further = [flag for flag in set_for_candidates if not any(same_flag(word, flag) for word in own)]
    for flag in dict.fromkeys([*own, *further, *spec.search.args]):
        if not known.has(flag):
            meant = nearest(flag, known.names)
            found.append((f"{command.script} has no flag {flag}", f"It has {meant}." if meant else ""))
    if _gets_local_rank(command) and not known.has(_LOCAL_RANK):
        told = f"the deepspeed launcher gives each rank {_LOCAL_RANK}, which {command.script} does not have"
        add = f'Add parser.add_argument("{_LOCAL_RANK}", type=int) to it, or --no_local_rank after deepspeed.'
        found.append((told, add))
    added = {_LOCAL_RANK, *OF_DEEPSPEED}  # by launchers, and by dsopt
    needed = [of for of in known.required if added.isdisjoint(of)]
    lacking = [of for of in needed if not any(is_meant(flag, name) for name in of for flag in own)]
    return found + [(f"{command.script} needs {of[-1]}, which the command does not give", "") for of in lacking]


def _gets_local_rank(command: LaunchCommand) -> bool:
    is_launched = command.launcher.name == "deepspeed" and command.option("--launcher") in _LAUNCHED_HERE
    return is_launched and not command.has_launcher_flag("--no_local_rank")
