"""The user's own run, where the study leaves it open: the first values of lists, and a batch that is a guess."""

import json

from dsopt.search.global_batch import configured_batch, global_batch, open_sizes, own_batch
from dsopt.search.history import BASELINE, History
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, ZERO, Candidate, listed_values
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


def unknown_batch(spec: StudySpec, history: History, best: Candidate | None) -> str | None:
    """What to know of the user's own global batch, if neither configuration and command nor their own run tell it.

    Args:
        spec: the study.
        history: what has run.
        best: the result's, if there is a result.
    """
    facts, keeps = history.facts_for(spec), spec.global_batch == "keep"
    baseline = history.find(BASELINE)
    is_over = baseline is not None and baseline.state != "running"
    if facts is None or not is_over or own_batch(spec, history, facts) is not None:
        return None
    keys = open_sizes(spec)
    why = (
        f"{' and '.join(keys)} {'is' if len(keys) == 1 else 'are'} 'auto', and your own configuration does not run, so "
        "nothing tells"
    )
    if keeps:
        return (
            f"WARNING: global_batch: keep: your global batch is a guess, {configured_batch(spec, facts)} samples: {why}"
            ". Write numbers in the configuration, and give the study another name."
        )
    if best is None:
        return None
    return (
        f"WARNING: your own global batch is not known: {why}. The best trains with {global_batch(spec, facts, best)} "
        "samples: compare that with yours, and scale your learning rate accordingly. dsopt changes none."
    )
