"""What runs showed of the model, in one line."""

from collections.abc import Sequence
from typing import Final

from dsopt.search.facts import ModelFacts

_GIB = 1024.0  # MiB
_COUNTS: Final = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K"))  # billions of parameters
_UNITS: Final = ((10**12, " T"), (10**9, " G"), (10**6, " M"), (10**3, " k"))  # GFLOP


def model_line(facts: ModelFacts) -> str:
    """Parameters, shape, activations and operations, as far as they are known."""
    trainable = "" if facts.trainable_params == facts.num_params else f" ({_short(facts.trainable_params)} trainable)"
    parts = [f"{_short(facts.num_params)} parameters{trainable}", facts.dtype]
    if facts.num_layers and facts.hidden_size:
        parts.append(f"{facts.num_layers} layers of hidden size {facts.hidden_size}")
    if facts.activation_bytes:
        mib = facts.activation_bytes / facts.micro_batch / 2**20
        size = f"{mib:.1f} MiB" if mib < _GIB else f"{mib / _GIB:.1f} GiB"
        parts.append(f"activations {size} per sample on each GPU")
    if facts.flops_per_step:
        parts.append(f"{_short(facts.flops_per_step / facts.micro_batch / facts.gas, _UNITS)}FLOP per sample")
    return ", ".join(parts)


def _short(number: float, letters: Sequence[tuple[int, str]] = _COUNTS) -> str:
    for size, letter in letters:
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"
