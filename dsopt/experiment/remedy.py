"""What helps against losses that are not finite, and against skipped steps."""

from typing import Final

# The sections "training and/or eval/predict loss is NaN" and "fp32 Precision" of Hugging Face's document on DeepSpeed;
# the scale begins at 2^initial_scale_power and is halved until nothing overflows.
_FP16_REMEDY: Final = (
    "A model that was pre-trained in bf16, such as most T5 models, overflows in fp16: train it in bf16 or fp32. "
    "Otherwise change fp16.initial_scale_power: 32 gives the loss scale more room, a smaller number than yours lets it "
    "settle sooner."
)
_OTHER_REMEDY: Final = (
    "Check the data, lower the learning rate, or set gradient_clipping. "
    "If the loss is NaN in fp32, too, DeepSpeed is not the cause."
)


def remedy(dtype: str) -> str:
    """Advice against a loss that is not finite, or against skipped steps."""
    return _FP16_REMEDY if dtype == "fp16" else _OTHER_REMEDY
