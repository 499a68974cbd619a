"""DeepSpeed's configuration checked against the installed DeepSpeed: each mistake with its message."""

from typing import Any

import pytest

from dsopt.errors import DsoptError
from dsopt.study.check_config import check_config, check_listed
from dsopt.study.ds_schema import Schema, installed_schema


@pytest.fixture(scope="module")
def schema() -> Schema:
    return installed_schema()


def zero(**keys: Any) -> dict[str, Any]:
    return {"zero_optimization": keys}


def adam(**params: Any) -> dict[str, Any]:
    return {"optimizer": {"type": "AdamW", "params": params}}


REFUSES, IGNORES, KEEPS = "refuses it: no run would start", "silently ignores it", "silently keeps it"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        # keys
        ({"fp16": {"enable": True}}, f"unknown key 'fp16.enable'. Did you mean 'fp16.enabled'? DeepSpeed V {REFUSES}"),
        (zero(overlap_com=True), f"Did you mean 'zero_optimization.overlap_comm'? DeepSpeed V {REFUSES}"),
        (zero(my_key=1), f"unknown key 'zero_optimization.my_key'. DeepSpeed V {REFUSES}. Remove it."),
        (zero(offload_param={"devise": "cpu"}), "Did you mean 'zero_optimization.offload_param.device'?"),
        ({"zero_optimisation": {}}, f"Did you mean 'zero_optimization'? DeepSpeed V {IGNORES}"),
        ({"comms_logger": {"enabld": True}}, f"Did you mean 'comms_logger.enabled'? DeepSpeed V {REFUSES}"),
        ({"tensorboard": {"output_pth": "x"}}, "Did you mean 'tensorboard.output_path'?"),
        ({"wandb": {"projct": "x"}}, "Did you mean 'wandb.project'?"),
        ({"compile": {"deepcompil": True}}, "Did you mean 'compile.deepcompile'?"),
        ({"tensor_parallel": {"autotp_sze": 2}}, "Did you mean 'tensor_parallel.autotp_size'?"),
        ({"timers": {"throughput": {"synchronised": True}}}, "Did you mean 'timers.throughput.synchronized'?"),
        (
            {"activation_checkpointing": {"cpu_checkpointng": True}},
            f"Did you mean 'activation_checkpointing.cpu_checkpointing'? DeepSpeed V {IGNORES}",
        ),
        ({"flops_profiler": {"profile_steps": 3}}, "Did you mean 'flops_profiler.profile_step'?"),
        ({"checkpoint": {"tag_validaton": "Warn"}}, "Did you mean 'checkpoint.tag_validation'?"),
        ({"checkpoint": {"writer": {"tpye": "FAST"}}}, "Did you mean 'checkpoint.writer.type'?"),
        ({"aio": {"blok_size": 1}}, "Did you mean 'aio.block_size'?"),
        ({"data_efficiency": {"data_sampling": {"num_wokers": 2}}}, f"num_workers'? DeepSpeed V {KEEPS}"),
        (
            {"data_efficiency": {"data_sampling": {"curriculum_learning": {"data_cluster_pth": "x"}}}},
            "Did you mean 'data_efficiency.data_sampling.curriculum_learning.data_cluster_path'?",
        ),
        ({"pipeline": {"partiton": "best"}}, "Did you mean 'pipeline.partition'?"),
        ({"sequence_parallel_sze": 2}, "Did you mean 'sequence_parallel_size'?"),
        (zero(mics_shard_size=2), "zero_optimization.mics_shard_size: DeepSpeed V refuses it, so no run would start:"),
        (zero(cpu_offload=True, offload_optimizer={"device": "cpu"}), "cpu_offload is the old name of"),
        # values
        ({"fp16": {"enabled": "yse"}}, "fp16.enabled: 'yse'. Expected true, false or \"auto\"."),
        ({"gradient_clipping": "abc"}, "gradient_clipping: 'abc'. Expected a number or \"auto\"."),
        ({"wall_clock_breakdown": "no"}, "wall_clock_breakdown: 'no'. Expected true, false"),
        ({"communication_data_type": "fp23"}, 'Expected "fp16", "bf16", "fp32" or "auto". Did you mean \'fp32\'?'),
        ({"data_types": {"grad_accum_dtype": "fp23"}}, "Did you mean 'fp32'?"),
        ({"torch_autocast": {"dtype": "bfloat61"}}, "Did you mean 'bfloat16'?"),
        ({"checkpoint": {"tag_validation": "Wran"}}, 'Expected "WARN", "IGNORE", "FAIL"'),
        ({"gradient_allreduce_op": "avg"}, 'Expected "mean", "sum"'),
        ({"fp16": True}, "fp16: True. Expected an object."),
        ({"optimizer": None}, "optimizer: None. Expected an object."),
        ({"fp16": {"loss_scale_window": 1.5}}, "fp16.loss_scale_window: 1.5. Expected a whole number"),
        ({"fp16": {"enabled": [True, False]}}, "Expected one value; values to try go in the study file"),
        (zero(reduce_bucket_size="big"), "'big'. Expected a whole number of more than 0"),
        (zero(reduce_bucket_size=[5e8, 0]), "reduce_bucket_size: 0. Expected a whole number of more than 0"),
        (zero(overlap_comm=[True, "maybe"]), "overlap_comm: 'maybe'. Expected true, false"),
        (zero(offload_optimizer={"ratio": 2}), "Expected a number of at least 0 and at most 1"),
        # names
        ({"optimizer": {"type": "Adamm"}}, "optimizer.type: 'Adamm'. Did you mean 'Adam'? DeepSpeed V has no"),
        ({"optimizer": {"type": "sgd"}}, "Did you mean 'SGD'?"),
        ({"optimizer": {"type": 3}}, "optimizer.type: 3. Expected a name, as text."),
        ({"optimizer": {"type": "Adam", "params": [1]}}, "optimizer.params: [1]. Expected an object."),
        ({"scheduler": {"type": "WarmpLR"}}, "scheduler.type: 'WarmpLR'. Did you mean 'WarmupLR'?"),
        (adam(wieght_decay=0.1), f"Did you mean 'optimizer.params.weight_decay'? DeepSpeed V {REFUSES}"),
        (adam(lr="3e-5"), "optimizer.params.lr: '3e-5'. Expected a number"),
        (adam(max_grad_norm=1.0), "give 'gradient_clipping' instead"),
        ({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_step": 3}}}, "scheduler.params.warmup_num_steps'?"),
        # exclusions
        ({"fp16": {"enabled": True}, "bf16": {"enabled": "true"}}, "fp16.enabled and bf16.enabled are both true"),
        ({"fp16": {"enabled": True}, "amp": {"enabled": True}}, "amp.enabled and fp16.enabled are both true"),
        ({"bf16": {"enabled": True}, "amp": {"enabled": True}}, "amp.enabled and bf16.enabled are both true"),
    ],
)
def test_mistakes(schema: Schema, config: dict[str, Any], message: str) -> None:
    with pytest.raises(DsoptError) as caught:
        check_config(config, "ds.json", schema)
    assert str(caught.value).startswith("ds.json: ")
    assert message.replace("DeepSpeed V", f"DeepSpeed {schema.version}") in str(caught.value)


@pytest.mark.parametrize(
    "config",
    [
        {"fp16": {"enabled": "auto", "loss_scale": 0, "hysteresis": 2}, "bf16": {"enabled": False}},
        {"fp16": {"enabled": "false", "initial_scale_power": "16"}},  # DeepSpeed's models convert them
        {"bf16": None, "zero_optimization": "all"},
        zero(stage=[1, 2], overlap_comm=[True, False], reduce_bucket_size=[5e8, "auto"], offload_param=None),
        zero(stage3_max_live_parameters=1e9, prefetch_bucket_size=0.94e6, cpu_offload=True),
        adam(lr="auto", betas=[0.9, 0.95], torch_adam=True, adam_w_mode=False, weight_decay=0),
        {"optimizer": {"type": "adamw"}, "scheduler": {"type": "CosineAnnealingLR", "params": {"T_max": 10}}},
        {"optimizer": {"type": "Muon", "params": {"muon_lr": 0.02, "adam_lr": 1e-4}}},
        {"optimizer": {"type": "SGD", "params": {"lr": 1, "momentum": 0.9, "nesterov": True}}},
        {"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": [0, 0.1], "warmup_type": "linear"}}},
        {"communication_data_type": "FP16", "checkpoint": {"tag_validation": "Ignore"}, "gradient_clipping": 1},
        {"data_efficiency": {"data_sampling": {"curriculum_learning": {"enabled": True, "curriculum_metrics": {
            "seqlen": {"difficulty_type": "value", "schedule_config": {"max_step": 10}}}}}}},
        {"expert_parallel": {"top_k": 2}, "data_types": {"keep_in_fp32_modules": ["norm"]}},
        {"datastates_ckpt": {"host_cache_size": 16}, "sequence_parallel_size": 2, "steps_per_print": None},
    ],
)  # fmt: skip
def test_what_deepspeed_takes_passes_without_a_word(schema: Schema, config: dict[str, Any]) -> None:
    assert check_config(config, "ds.json", schema) == []


@pytest.mark.parametrize(
    ("config", "warning"),
    [
        ({"my_section": {"x": 1}}, f"unknown key 'my_section': DeepSpeed V {IGNORES}. dsopt passes it on unchanged."),
        ({"loss_scale": 0}, "DeepSpeed reads 'fp16.loss_scale'."),
        ({"data_efficiency": {"curriculum_learning": {}}}, "'data_efficiency.data_sampling.curriculum_learning'"),
        ({"aio": {"thread_count": 1}}, f"unknown key 'aio.thread_count': DeepSpeed V {IGNORES}"),
        ({"amp": {"enabled": "auto"}}, "amp: DeepSpeed V refuses it, so no run would start: NVIDIA Apex AMP"),
        ({"sparse_attention": {"mode": "fixed"}}, "sparse_attention: DeepSpeed V refuses it, so no run would start"),
        ({"optimizer": {"type": "OneBitAdam"}}, "has no optimizer 'OneBitAdam', and refuses it unless the script"),
        ({"optimizer": {"name": "Adam", "type": "Adam"}}, "unknown key 'optimizer.name'"),
    ],
)
def test_what_may_be_meant_passes_with_a_warning(schema: Schema, config: dict[str, Any], warning: str) -> None:
    [given] = check_config(config, "ds.json", schema)
    assert warning.replace("DeepSpeed V", f"DeepSpeed {schema.version}") in given


def test_dimensions_may_have_lists_anywhere(schema: Schema) -> None:
    listed = {"fp16": {"enabled": [True, None]}, "optimizer": {"type": ["Adam", "Lion"]}, "gradient_clipping": [0.5, 1]}
    assert check_listed(listed, "study.yaml", schema) == []
    for wrong, message in (
        ({"fp16": {"enabled": [True, "yse"]}}, "fp16.enabled: 'yse'"),
        ({"optimizer": {"type": ["Adam", "Lyon"]}}, "Did you mean 'lion'?"),
    ):
        with pytest.raises(DsoptError, match=message):
            check_listed(wrong, "study.yaml", schema)
