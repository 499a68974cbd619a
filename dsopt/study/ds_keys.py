"""The keys DeepSpeed 0.16–0.19 reads, by section. DeepSpeed takes a misspelled key in silence; dsopt does not.

Source: `deepspeed/runtime/config.py`, `constants.py`, `zero/config.py`, `zero/offload_config.py` and
`precision_config.py`; a test compares the lists that DeepSpeed declares as models with the installed version.
"""

from typing import Final

TOP_LEVEL: Final = frozenset(
    """
    train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps managed_gradient_accumulation
    optimizer scheduler fp16 bf16 bfloat16 amp torch_autocast data_types communication_data_type
    seq_parallel_communication_data_type gradient_clipping prescale_gradients gradient_predivide_factor
    gradient_allreduce_op sparse_gradients zero_optimization zero_allow_untested_optimizer
    zero_force_ds_cpu_optimizer aio activation_checkpointing steps_per_print wall_clock_breakdown dump_state
    memory_breakdown log_level flops_profiler autotuning comms_logger comms_config tensorboard wandb comet csv_monitor
    monitor_config data_efficiency curriculum_learning data_sampling data_routing random_ltd
    progressive_layer_drop sparse_attention elasticity pipeline checkpoint compression_training quantize_training
    weight_quantization hybrid_engine nebula disable_allgather disable_python_gc dataloader_drop_last
    use_data_before_expert_parallelism vocabulary_size compile tensor_parallel timers eigenvalue
    sequence_parallel_size data_parallel_size expert_parallel domino zenflow
    train inference_tp_size replace_with_kernel_inject local_rank communication_data_type_fp32 version
    """.split()
)

ZERO: Final = frozenset(
    """
    stage allgather_bucket_size allgather_partitions allgather_sequential compute_grad_norm contiguous_gradients
    cpu_offload cpu_offload_param cpu_offload_params cpu_offload_use_pin_memory elastic_checkpoint
    enable_sanity_checks gather_16bit_weights_on_model_save ignore_unused_parameters leaf_module legacy_stage1
    load_from_fp32_weights log_trace_cache_warnings max_live_parameters max_reuse_distance memory_efficient_linear
    model_persistence_threshold module_granularity_threshold offload_optimizer offload_param overlap_comm
    override_module_apply param_persistence_threshold parameter_alignment pipeline_loading_checkpoint
    prefetch_bucket_size reduce_bucket_size reduce_scatter round_robin_gradients
    save_muon_momentum_buffer_in_memory stage3_gather_fp16_weights_on_model_save sub_group_size
    use_all_reduce_for_fetch_params use_multi_rank_bucket_allreduce zenflow zero_hpz_partition_size
    zero_quantized_gradients zero_quantized_nontrainable_weights zero_quantized_weights mics_shard_size
    mics_hierarchical_params_gather stage3_prefetch_bucket_size stage3_param_persistence_threshold
    stage3_model_persistence_threshold stage3_max_live_parameters stage3_max_reuse_distance
    stage3_gather_16bit_weights_on_model_save stage3_module_granularity_threshold
    stage3_use_all_reduce_for_fetch_params stage3_allgather_sequential
    """.split()
)

OFFLOAD_PARAM: Final = frozenset("buffer_count buffer_size device max_in_cpu nvme_path pin_memory".split())

OFFLOAD_OPTIMIZER: Final = frozenset(
    """
    buffer_count cpuadam_cores_perc device fast_init nvme_path pin_memory pipeline pipeline_read pipeline_write ratio
    super_offload
    """.split()
)

FP16: Final = frozenset(
    """
    auto_cast consecutive_hysteresis enabled fp16_master_weights_and_grads fp16_opt_level hysteresis
    initial_scale_power loss_scale loss_scale_window min_loss_scale
    """.split()
)

BF16: Final = frozenset(
    """
    bf16_master_weights_and_grads bf16_optimizer_states check_grad_overflow enabled immediate_grad_update auto_cast
    loss_scale
    """.split()
)

# 0.16 reads thread_count where later ones read intra_op_parallelism
AIO: Final = frozenset(
    "block_size queue_depth thread_count intra_op_parallelism single_submit overlap_events use_gds".split()
)

OPTIMIZER: Final = frozenset(["type", "params", "legacy_fusion"])
SCHEDULER: Final = frozenset(["type", "params"])

SECTIONS: Final[dict[tuple[str, ...], frozenset[str]]] = {
    (): TOP_LEVEL,
    ("zero_optimization",): ZERO,
    ("zero_optimization", "offload_param"): OFFLOAD_PARAM,
    ("zero_optimization", "offload_optimizer"): OFFLOAD_OPTIMIZER,
    ("fp16",): FP16,
    ("bf16",): BF16,
    ("aio",): AIO,
    ("optimizer",): OPTIMIZER,
    ("scheduler",): SCHEDULER,
}
