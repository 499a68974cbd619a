"""Refuses sizes and steps of a study that contradict each other, or leave nothing to try."""

from typing import Final

from dsopt.errors import DsoptError
from dsopt.study.own_sizes import smallest_micro_batch
from dsopt.study.spec import StudySpec

_LEAST_OF_A_DEVICE: Final = 2**20


def check_window(spec: StudySpec, where: str) -> None:
    """Refuses a window of steps that ends before it begins."""
    autotuning = spec.autotuning
    if autotuning.window and autotuning.end_profile_step < autotuning.start_profile_step:
        raise DsoptError(
            f"{where}: autotuning.end_profile_step: {autotuning.end_profile_step} is before "
            f"start_profile_step {autotuning.start_profile_step}. Expected a later step."
        )


def check_device_memory(spec: StudySpec, where: str) -> None:
    """Refuses gigabytes without a unit."""
    size = spec.memory_per_device
    if size is not None and size < _LEAST_OF_A_DEVICE:
        raise DsoptError(f"{where}: memory_per_device: {size} bytes. Expected a device's memory, such as 80GiB.")


def check_sizes(spec: StudySpec, where: str) -> None:
    """Refuses micro-batch sizes and bounds that leave nothing to try."""
    tuning = spec.autotuning
    least, most = tuning.min_train_micro_batch_size_per_gpu, tuning.max_train_micro_batch_size_per_gpu
    listed = spec.micro_batch_list or ()
    smallest = least if listed else smallest_micro_batch(spec)
    if most is not None and most < smallest:
        raise DsoptError(
            f"{where}: autotuning.max_train_micro_batch_size_per_gpu: {most} is below the smallest micro-batch size "
            f"to try, {smallest}. Expected at least that."
        )
    outside = [size for size in listed if size < least or (most is not None and size > most)]
    if outside:
        raise DsoptError(
            f"{where}: train_micro_batch_size_per_gpu: {outside[0]} is outside autotuning's "
            f"min_ and max_train_micro_batch_size_per_gpu ({least} to {most or 'any'}). Correct one of them."
        )
    total = tuning.max_train_batch_size
    if total is None:
        return
    if tuning.min_train_batch_size > total:
        raise DsoptError(
            f"{where}: autotuning.max_train_batch_size: {total} is below min_train_batch_size "
            f"{tuning.min_train_batch_size}. Expected at least that."
        )
    replicas = (spec.resources.ranks or 1) * spec.resources.nodes // tuning.mp_size
    needed = min(listed or (smallest,)) * min(spec.accumulation_list or (1,)) * max(1, replicas)
    if needed > total:
        raise DsoptError(
            f"{where}: autotuning.max_train_batch_size: {total} is below the smallest possible batch, {needed} "
            "(micro-batch × accumulation × ranks ÷ mp_size). Expected at least that."
        )
