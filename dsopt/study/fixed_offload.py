"""The offload that a study fixes, and the ZeRO stages that do not support it."""

from collections.abc import Mapping

from dsopt.errors import DsoptError
from dsopt.study.ds_config import get_path, user_zero
from dsopt.study.space import ZERO
from dsopt.study.spec import StudySpec
from dsopt.study.zero_stages import least_stage

# each section, and the older key that means the same
_SECTIONS: Mapping[str, str] = {"offload_optimizer": "cpu_offload", "offload_param": "cpu_offload_params"}


def missing_offload(spec: StudySpec, stage: int) -> str | None:
    """Why a stage does not support the offload that a study fixes, if so: `offload_param.device: cpu needs ZeRO 3`.

    A list fixes what all of its values have in common: with `none` in it, it fixes nothing.
    """
    for section in _SECTIONS:
        devices, ratios = _values(spec, section, "device"), _values(spec, section, "ratio")
        if any(device in (None, "none") for device in devices):
            continue
        partial = [ratio for ratio in ratios if isinstance(ratio, int | float) and ratio < 1]
        for key, values in (("device", devices), ("ratio", partial if len(partial) == len(ratios) else [])):
            least = min((least_stage(section, key, value) for value in values), default=0)
            if stage < least:
                listed = " or ".join(str(value) for value in values)
                return f"{section}.{key}: {listed} needs ZeRO {least}{'' if least == 3 else ' or higher'}"
    return None


def check_stages(spec: StudySpec, where: str) -> None:
    """Refuses a study if none of its stages supports the offload that it fixes.

    Raises:
        DsoptError: what is missing, and what to do.
    """
    missing = [missing_offload(spec, stage) for stage in spec.stages]
    if missing and None not in missing:  # a comparison has no stages
        listed = ", ".join(str(stage) for stage in spec.stages)
        raise DsoptError(
            f"{where}: zero_optimization.{missing[-1]}, but the study tries only ZeRO {listed}. "
            "Add that stage to zero_optimization.stage, or leave out the offload."
        )


def _values(spec: StudySpec, section: str, key: str) -> list[object]:
    """What a study has, or tries, at a key of an offload section."""
    zero = user_zero(spec.ds_config)
    found = spec.search.ds_config.get(f"{ZERO}{section}.{key}", get_path(zero, f"{section}.{key}"))
    if found is None and key == "device" and zero.get(_SECTIONS[section]) is True:
        found = "cpu"
    return list(found) if isinstance(found, list) else [found]
