"""The user's own run, where the study leaves it open: the first values of lists, and a batch that is a guess."""

import json

from dsopt.search.global_batch import configured_batch
from dsopt.search.history import BASELINE, History
from dsopt.study.ds_config import TRAIN_BATCH
from dsopt.study.own_sizes import own_size
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, ZERO, listed_values
from dsopt.study.spec import StudySpec


def first_values(spec: StudySpec) -> str:
    """What the user's own run has of the lists in the configuration, such as `stage 1`; empty without lists."""
    config, zero = spec.ds_config, spec.ds_config.get(ZERO.rstrip("."))
    lists = {key: config[key] for key in (MICRO_BATCH, ACCUMULATION) if isinstance(config.get(key), list)}
    if isinstance(zero, dict):
        stages = zero.get("stage")
        lists |= {"stage": stages} if isinstance(stages, list) else {}
        lists |= {path: values for path, values in listed_values(zero) if path != "stage"}
    told = [f"{key} {'not given' if values[0] is None else json.dumps(values[0])}" for key, values in lists.items()]
    return ", ".join(word.replace('"', "") for word in told)


def guessed_batch(spec: StudySpec, history: History) -> str | None:
    """What to know of a batch that is kept, if neither configuration and command nor the user's own run tell it."""
    baseline, facts = history.find(BASELINE), history.facts_for(spec)
    if spec.global_batch != "keep" or facts is None or baseline is None or baseline.facts is not None:
        return None
    given = {key: spec.ds_config.get(key) for key in (TRAIN_BATCH, MICRO_BATCH, ACCUMULATION)}
    unknown = [key for key in (MICRO_BATCH, ACCUMULATION) if given[key] == "auto" and own_size(spec, key) == 1]
    if isinstance(given[TRAIN_BATCH], int) or not unknown:
        return None
    return (
        f"WARNING: global_batch: keep: your global batch is a guess, {configured_batch(spec, facts)} samples: "
        f"{' and '.join(unknown)} {'is' if len(unknown) == 1 else 'are'} 'auto', and your own configuration does not "
        "run, so nothing tells. Write numbers in the configuration, and give the study another name."
    )
