"""The batch sizes of the user's own run, as the configuration and the command say them."""

from dsopt.study.spec import StudySpec


def own_size(spec: StudySpec, key: str) -> int:
    """The micro-batch size or accumulation of the user's own run, by its key in DeepSpeed's configuration.

    It comes from the configuration (the first of a list), else from the mapped flag of the script, else it is 1:
    the rule of DeepSpeed's autotuning tutorial.
    """
    given = spec.ds_config.get(key)
    own = given[0] if isinstance(given, list) else given
    if isinstance(own, int):
        return own
    flag = spec.autotuning.arg_mappings.get(key)
    typed = spec.launch.script_value(flag) if flag else None
    return int(typed) if typed is not None and typed.isdecimal() and int(typed) >= 1 else 1
