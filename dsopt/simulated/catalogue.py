"""Devices and models that exist, by their public data sheets and configurations."""

from typing import Final

from dsopt.simulated.model import GIB, Device, Model


def _device(
    name: str, gib: float, half: float, single: float, bandwidth: float, processors: int, pcie: float
) -> Device:
    """From GiB that torch reports, TFLOP/s, GB/s of memory, streaming multiprocessors, GB/s of PCIe in practice."""
    return Device(
        name=name,
        memory_bytes=int(gib * GIB),
        half_flops_per_second=half * 1e12,
        single_flops_per_second=single * 1e12,
        memory_bytes_per_second=bandwidth * 1e9,
        processors=processors,
        pcie_bytes_per_second=pcie * 1e9,
    )


DEVICES: Final = {
    device.name: device
    for device in (
        _device("L4-24GB", 22.0, 121, 30.3, 300, 58, 20),
        _device("A10-24GB", 22.1, 125, 31.2, 600, 72, 20),
        _device("RTX3090-24GB", 23.7, 71, 35.6, 936, 82, 20),
        _device("RTX4090-24GB", 23.6, 165, 82.6, 1008, 128, 20),
        _device("V100-32GB", 31.75, 125, 15.7, 900, 80, 11),
        _device("A100-40GB", 39.4, 312, 19.5, 1555, 108, 22),
        _device("A6000-48GB", 47.5, 155, 38.7, 768, 84, 20),
        _device("L40S-48GB", 44.5, 362, 91.6, 864, 142, 20),
        _device("A100-80GB", 79.2, 312, 19.5, 2039, 108, 22),
        _device("H100-80GB", 79.1, 989, 67, 3350, 132, 45),
        _device("H200-141GB", 139.8, 989, 67, 4800, 132, 45),
    )
}


def _model(
    name: str,
    millions: float,
    layers: int,
    hidden: int,
    heads: int,
    intermediate: int,
    vocab: int,
    sequence: int,
    *,
    is_gated: bool = False,
    has_logits: bool = True,
) -> Model:
    params = int(millions * 1e6)
    return Model(
        name=name,
        params=params,
        trainable_params=params,
        layers=layers,
        hidden=hidden,
        heads=heads,
        intermediate=intermediate,
        vocab=vocab,
        sequence=sequence,
        is_gated=is_gated,
        has_logits=has_logits,
    )


MODELS: Final = {
    model.name: model
    for model in (
        _model("distilbert", 66, 6, 768, 12, 3072, 30522, 128, has_logits=False),
        _model("bert-base", 110, 12, 768, 12, 3072, 30522, 128, has_logits=False),
        _model("bert-large", 335, 24, 1024, 16, 4096, 30522, 128, has_logits=False),
        _model("deberta-v2-xxlarge", 1565, 48, 1536, 24, 6144, 128100, 256, has_logits=False),
        _model("gpt2", 124, 12, 768, 12, 3072, 50257, 1024),
        _model("gpt2-medium", 355, 24, 1024, 16, 4096, 50257, 1024),
        _model("gpt2-large", 774, 36, 1280, 20, 5120, 50257, 1024),
        _model("gpt2-xl", 1558, 48, 1600, 25, 6400, 50257, 1024),
        _model("opt-1.3b", 1316, 24, 2048, 32, 8192, 50272, 2048),
        _model("pythia-2.8b", 2775, 32, 2560, 32, 10240, 50304, 2048),
        _model("pythia-6.9b", 6857, 32, 4096, 32, 16384, 50432, 2048),
        _model("pythia-12b", 11846, 36, 5120, 40, 20480, 50688, 2048),
        _model("qwen2.5-0.5b", 494, 24, 896, 14, 4864, 151936, 2048, is_gated=True),
        _model("qwen2.5-1.5b", 1544, 28, 1536, 12, 8960, 151936, 2048, is_gated=True),
        _model("tinyllama-1.1b", 1100, 22, 2048, 32, 5632, 32000, 2048, is_gated=True),
        _model("llama-3.2-3b", 3213, 28, 3072, 24, 8192, 128256, 2048, is_gated=True),
        _model("llama-2-7b", 6738, 32, 4096, 32, 11008, 32000, 4096, is_gated=True),
        _model("mistral-7b", 7242, 32, 4096, 32, 14336, 32000, 4096, is_gated=True),
        _model("llama-3-8b", 8030, 32, 4096, 32, 14336, 128256, 4096, is_gated=True),
        _model("llama-2-13b", 13016, 40, 5120, 40, 13824, 32000, 4096, is_gated=True),
        _model("qwen2.5-32b", 32764, 64, 5120, 40, 27648, 152064, 4096, is_gated=True),
        _model("codellama-34b", 33744, 48, 8192, 64, 22016, 32016, 4096, is_gated=True),
        _model("llama-2-70b", 68977, 80, 8192, 64, 28672, 32000, 4096, is_gated=True),
    )
}
