"""Usual names of checkpoints, and of what says that a training goes on."""

import re
from typing import Final

FOLDER: Final = re.compile(r"(checkpoint|ckpt|global_?step|epoch|step)[-_.]?\d*s?", re.IGNORECASE)
FILE: Final = re.compile(r"latest|.*\.(pt|pth|ckpt|bin|safetensors|distcp|npz|h5|msgpack|tar|pkl)", re.IGNORECASE)
LOCK: Final = re.compile(r".*\.(pid|lock|lck)|pidfile|lock", re.IGNORECASE)
