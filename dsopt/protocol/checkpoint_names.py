"""Usual names of checkpoints, of the folder of one training, and of what says that a training goes on."""

import re
from typing import Final

FOLDER: Final = re.compile(r"(checkpoint|ckpt|global_?step|epoch|step)[-_.]?\d*s?", re.IGNORECASE)
FILE: Final = re.compile(r"latest|.*\.(pt|pth|ckpt|bin|safetensors|distcp|npz|h5|msgpack|tar|pkl)", re.IGNORECASE)
WEIGHTS: Final = re.compile(r".*\.(pt|pth|ckpt|safetensors|distcp|npz|h5|msgpack|pkl)", re.IGNORECASE)  # and not data
RUN: Final = re.compile(  # by a date with a time, a time, or a number of its own; a date alone may be one of data
    r".*\d{4}[-_.]?\d\d[-_.]?\d\d[-_.T ]*\d\d.*|(.*\D)?\d\d[-_.:]\d\d[-_.:]\d\d(\D.*)?"
    r"|(run|exp|experiment|version|trial|job)[-_.]?\d+",
    re.IGNORECASE,
)
LOCK: Final = re.compile(r".*\.(pid|lock|lck)|pidfile|lock", re.IGNORECASE)
