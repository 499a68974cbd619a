"""How fast devices compute at best, for what to expect of a step before sizes were tried."""

import re
from typing import Final

# 10¹² dense 16-bit operations a second with fp32 sums, from NVIDIA's data sheets; the first that is found in the name
_TERAFLOPS: Final = (
    (r"B200|B300", 2250.0),
    (r"H100.*PCIe", 756.0),
    (r"H100|H200|H800|GH200", 989.0),
    (r"A100|A800", 312.0),
    (r"L40S", 362.0),
    (r"L40\b", 181.0),
    (r"A40\b|A6000", 150.0),
    (r"A30\b", 165.0),
    (r"A10\b|L4\b", 125.0),
    (r"RTX ?5090", 209.0),
    (r"RTX ?4090", 165.0),
    (r"RTX ?3090", 71.0),
    (r"V100", 125.0),
    (r"T4\b|Titan ?RTX", 65.0),
)


def peak_flops(device: str, dtype: str) -> float | None:
    """Floating-point operations a second of a device in 16 bit by its name, such as `NVIDIA A100-SXM4-80GB`.

    None for other data types, whose speed follows torch's settings, and for devices that are not known.
    """
    if dtype == "fp32":
        return None
    found = (rate for pattern, rate in _TERAFLOPS if re.search(pattern, device, re.IGNORECASE))
    rate = next(found, None)
    return None if rate is None else rate * 1e12
