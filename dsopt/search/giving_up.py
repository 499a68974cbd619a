"""Which memory-saving steps a study does not allow, and why it cannot continue when nothing runs."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dsopt.estimates.zero_memory import Offload
from dsopt.search.facts import ModelFacts, configured_dtype, facts_without_a_run
from dsopt.search.history import History
from dsopt.search.least_memory import is_on, profile_candidate, saves_activations, saves_weights, shortens
from dsopt.search.sharding import Sharding, offload_of, sharding_of
from dsopt.search.zero_buffers import reduce_buffers
from dsopt.search.zero_settings import ZeroSettings
from dsopt.study.ds_config import values_of
from dsopt.study.quantity import gib
from dsopt.study.space import ZERO, Candidate
from dsopt.study.spec import StudySpec

_BUCKET = f"{ZERO}reduce_bucket_size"
_SMALL_BUCKET = 50_000_000  # elements; a tenth of DeepSpeed's own
_WORTH_SAYING = 2**27  # bytes
_LEAST = 2**20  # bytes: what saves less is no advice
_UNKNOWN = "unknown until the model is known: give autotuning.model_info"


def why_nothing_runs(spec: StudySpec, history: History) -> str:
    """The message of a study that ends because neither the user's configuration nor the most frugal one runs."""
    baseline, profile = history.find("baseline"), history.find("profile")
    assert baseline is not None
    least = profile_candidate(spec)
    if profile is None:
        tried = [*history.observations, *(o for o in history.reference if o.round)]
        first = next((o.message for o in tried if o.message), "nothing is expected to fit")
        message = f"neither your configuration nor any candidate runs. Yours: {baseline.message} Candidates: {first}"
    else:
        message = (
            "neither your configuration nor the one with the least memory that the study allows "
            f"({_described(least)}) runs. Yours: {baseline.message} Least memory: {profile.message}"
        )
    if (profile or baseline).reason != "oom":
        return message + _unfilled_text(spec.own_config)
    rungs = [f"\n- {rung}" for rung in memory_savers(spec, facts_without_a_run(spec, history.failed_engine))]
    heading = "\nThese need less memory on a GPU, but the study does not allow them:"
    return "".join([message, heading, *rungs] if rungs else [message])


def _unfilled_text(config: Mapping[str, Any]) -> str:
    """What "auto" needs, if a configuration leaves something to the script."""
    left = [path for path, value in values_of(config) if value == "auto"]
    if not left:
        return ""
    return (
        f'\nYour configuration has "auto" for {", ".join(left)}. The Hugging Face Trainer and Accelerate fill that in. '
        "A script that calls deepspeed.initialize itself needs values there."
    )


def memory_savers(spec: StudySpec, facts: ModelFacts | None) -> list[str]:
    """What needs less memory on a GPU than anything that a study allows: each with what it saves and the line to add.

    Args:
        spec: the study.
        facts: of model and devices, if they are known.
    """
    return [str(rung) for rung in _Ladder(spec, profile_candidate(spec), facts).rungs()]


def _described(candidate: Candidate) -> str:
    """A candidate in words."""
    given = [(key.removeprefix(ZERO), value) for key, value in candidate.knobs if value is not None]
    knobs = [f"{key} {value}".strip() for key, value in given]
    return ", ".join([f"ZeRO {candidate.stage}", "micro-batch 1", *knobs])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rung:
    """A step that a study does not allow: what it is, what it saves in words, and the line to add."""

    name: str
    saves: str
    line: str

    def __str__(self) -> str:
        return f"{self.name}: saves {self.saves}; {self.line}"


class _Ladder:
    """The steps of "How to choose which ZeRO stage and offloads to use" in Hugging Face's document on DeepSpeed.

    Args:
        spec: the study.
        least: the most frugal candidate that it allows.
        facts: of model and devices, if they are known.
    """

    def __init__(self, spec: StudySpec, least: Candidate, facts: ModelFacts | None) -> None:
        self._spec = spec
        self._least = least
        self._is_half = any(saves_weights(key) and is_on(value) for key, value in least.knobs)
        self._facts = replace(facts, dtype="bf16") if facts is not None and self._is_half else facts
        self._offload = offload_of(spec, least.stage, least.knobs)

    def rungs(self) -> list[_Rung]:
        """Those that are not allowed and save something, in the document's order."""
        return [rung for rung in self._all() if rung is not None]

    def _all(self) -> Iterator[_Rung | None]:
        if not self._recomputes():
            yield _Rung(
                name="gradient checkpointing, which is not a dimension of this study",
                saves="most of the activations",
                line='search: {args: {--gradient_checkpointing: [null, ""]}}, or your script\'s own flag',
            )
        yield from self._buckets()
        stage = self._least.stage
        if stage < 2:
            yield self._stage(2)
        if self._offload.optimizer == "none":
            to_cpu = replace(self._offload, optimizer="cpu")
            yield self._offloading("offload_optimizer", max(1, stage), to_cpu)
        if stage < 3:
            yield self._stage(3)
        if self._offload.param == "none":
            yield self._offloading("offload_param", 3, replace(self._offload, param="cpu"))
        if not any(shortens(key) for key, _ in self._least.knobs):
            yield _Rung(
                name="a shorter sequence",
                saves="activations in proportion",
                line="search: {args: {--max_seq_length: [512, 1024]}}, or your script's own flag",
            )
        dtype = self._facts.dtype if self._facts else configured_dtype(self._spec)
        if dtype == "fp32" and not self._is_half:
            states = self._saved(dtype="bf16")
            saves = f"{states}, and half of the activations" if states else "half of the activations"
            yield _Rung(name="bf16 or fp16", saves=saves, line=_json(bf16={"enabled": True}))
        if "nvme" not in (self._offload.optimizer, self._offload.param):
            yield self._nvme()

    def _buckets(self) -> Iterator[_Rung]:
        """Smaller ones, where DeepSpeed's are large beside the model."""
        facts, stage, knobs = self._facts, self._least.stage, self._least.knobs
        if facts is None or _BUCKET in dict(knobs):
            return
        zero = ZeroSettings(self._spec, facts.hidden_size)
        own = reduce_buffers(self._spec, facts, zero, stage, knobs)
        less = own - reduce_buffers(self._spec, facts, zero, stage, (*knobs, (_BUCKET, _SMALL_BUCKET)))
        if less >= _WORTH_SAYING:
            sizes = [int(zero(stage, knobs, _BUCKET)), _SMALL_BUCKET]
            yield _Rung(
                name="smaller buckets for gradients",
                saves=f"{gib(less)} of buffers",
                line=_json(zero_optimization={"reduce_bucket_size": sizes}),
            )

    def _recomputes(self) -> bool:
        typed = [word.partition("=")[0] for word in self._spec.launch.script_args]
        given = [(flag, self._spec.launch.script_switch(flag)) for flag in typed]
        return any(saves_activations(key) and is_on(value) for key, value in (*self._least.knobs, *given))

    def _stage(self, stage: int) -> _Rung | None:
        saves, stages = self._saved(stage=stage), [*self._spec.stages, stage]
        line = _json(zero_optimization={"stage": stages})
        return _Rung(name=f"ZeRO {stage}", saves=saves, line=line) if saves else None

    def _offloading(self, section: str, stage: int, offload: Offload) -> _Rung | None:
        saves = self._saved(stage=stage, offload=offload)
        if saves is None:
            return None
        needs = f" (at ZeRO {stage})" if stage > self._least.stage else ""
        return _Rung(
            name=f"{section} to cpu{needs}",
            saves=saves,
            line=_json(zero_optimization={section: {"device": ["none", "cpu"]}}),
        )

    def _nvme(self) -> _Rung | None:
        to_cpu = Offload(optimizer="cpu", param="cpu")
        saves = self._saved(stage=3, offload=to_cpu)
        if saves is None:
            return None
        if self._facts is not None:
            on_host = replace(self._sharding(self._facts), stage=3, offload=to_cpu)
            saves = f"what offloading to cpu saves, and {gib(on_host.host_bytes(self._facts))} of host memory"
        section = {"device": ["none", "nvme"], "nvme_path": "/local_nvme"}
        return _Rung(
            name="NVMe (at ZeRO 3)",
            saves=saves,
            line=_json(zero_optimization={"offload_optimizer": section, "offload_param": section}),
        )

    def _saved(
        self, *, stage: int | None = None, offload: Offload | None = None, dtype: str | None = None
    ) -> str | None:
        """What another stage, offload or data type saves on one GPU; None: nothing."""
        facts = self._facts
        if facts is None:
            return _UNKNOWN
        own = self._sharding(facts)
        other = replace(own, stage=own.stage if stage is None else stage, offload=offload or own.offload)
        less = own.device_bytes(facts) - other.device_bytes(replace(facts, dtype=dtype or facts.dtype))
        return f"{gib(less)} of model states" if less >= _LEAST else None

    def _sharding(self, facts: ModelFacts) -> Sharding:
        return sharding_of(self._spec, facts, self._least.stage, self._least.knobs)


def _json(**section: object) -> str:
    """A line of DeepSpeed's configuration."""
    return json.dumps(section)[1:-1]
