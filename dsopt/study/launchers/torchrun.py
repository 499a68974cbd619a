"""PyTorch's launcher: torch/distributed/run.py, 2.13."""

from typing import Final

from dsopt.study.launchers.launcher import Launcher

TORCHRUN: Final = Launcher(
    name="torchrun",
    programs=(("torchrun",),),
    modules=(("torch.distributed.run",), ("torch.distributed.launch",)),
    flags=frozenset("--standalone -m --module --no_python --run_path --virtual_local_rank --use_env".split()),
    valued=frozenset(
        """
        --nnodes --nproc_per_node --rdzv_backend --rdzv_endpoint --rdzv_id --rdzv_conf --max_restarts
        --monitor_interval --start_method --event_log_handler --role --log_dir -r --redirects -t --tee
        --local_ranks_filter --duplicate_stdout_filters --duplicate_stderr_filters --node_rank --master_addr
        --master_port --local_addr --logs_specs --numa_binding --signals_to_handle --shutdown_timeout
        """.split()
    ),
    takes_prefixes=True,
    module=("-m", "--module"),
    ranks=("--nproc_per_node",),
    rank_words=("gpu", "cpu", "auto"),
    nodes=("--nnodes",),
    node_words=("1:1",),
    port="--master_port",
    address="--master_addr",
    node_rank="--node_rank",
    rendezvous=("--standalone", "--rdzv_backend", "--rdzv_endpoint", "--rdzv_id", "--rdzv_conf"),
    observable=frozenset(
        """
        --nproc_per_node --nnodes --node_rank --master_addr --master_port -m --module --max_restarts --monitor_interval
        --role --use_env --virtual_local_rank
        """.split()
    ),
)
