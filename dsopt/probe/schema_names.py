"""The optimizers and schedulers that DeepSpeed knows by name, and the parameters of each."""

import inspect
import re
from typing import Any

from dsopt.probe.schema_models import key_of_default, section_of_calls

_GIVEN = frozenset(["self", "optimizer", "params", "model_params"])  # what DeepSpeed hands over itself
_MAKERS = re.compile("deepspeed|zenflow|fused|cpu")  # an optimizer called adam is made of FusedAdam, DeepSpeedCPUAdam …
_POPPED = re.compile(r"optimizer_parameters\.pop\(\s*(['\"]?)(\w+)")


def optimizer_params() -> dict[str, Any]:
    """A section for the `params` of each name that `optimizer.type` may have; null if they are unknown.

    DeepSpeed accepts its own names in any case, which this gives in lower case, and those of `torch.optim`.
    """
    import torch
    from deepspeed.ops import adagrad, adam, lamb, lion
    from deepspeed.runtime import engine
    from deepspeed.runtime.config import DEEPSPEED_OPTIMIZERS, MAX_GRAD_NORM

    own = [found for module in (adagrad, adam, lamb, lion) for found in _classes(module).values()]
    classes = [*own, *_classes(torch.optim).values()]
    source = inspect.getsource(engine)
    popped = {word if quote else getattr(engine, word, word) for quote, word in _POPPED.findall(source)}
    refused = {MAX_GRAD_NORM: "It is not a parameter of the optimizer; give 'gradient_clipping' instead."}
    sections: dict[str, Any] = {}
    for name in DEEPSPEED_OPTIMIZERS:
        made = [found for found in classes if _MAKERS.sub("", found.__name__.lower()) in (name, name.removesuffix("w"))]
        is_own = any(found in own for found in made)  # torch's Muon is not DeepSpeed's
        sections[name] = section_of_calls([found.__init__ for found in made], _GIVEN) if is_own else None
        if name.startswith("adam"):
            sections[name]["keys"] |= {key: key_of_default(None) for key in popped}
    for name, found in _classes(torch.optim).items():
        if name != "Optimizer":
            sections[name] = section_of_calls([found.__init__], _GIVEN)
    for section in sections.values():
        if section is not None:
            section["keys"] |= {key: {"kind": "any", "refused": why} for key, why in refused.items()}
    return sections


def scheduler_params() -> dict[str, Any]:
    """A section for the `params` of each name that `scheduler.type` may have."""
    import torch
    from deepspeed.runtime import lr_schedules

    own = {name: getattr(lr_schedules, name) for name in lr_schedules.VALID_LR_SCHEDULES}
    found = {**_classes(torch.optim.lr_scheduler), **own}
    return {
        name: section_of_calls([each.__init__], _GIVEN)
        for name, each in found.items()
        if name != "LRScheduler" and "optimizer" in inspect.signature(each.__init__).parameters
    }


def _classes(module: Any) -> dict[str, Any]:  # noqa: ANN401 - a module
    return {name: found for name, found in vars(module).items() if inspect.isclass(found) and name[0].isupper()}
