"""Usual names of checkpoints."""

import re
from typing import Final

FOLDER: Final = re.compile(r"(checkpoint|ckpt|global_?step|epoch|step)[-_.]?\d*s?", re.IGNORECASE)
FILE: Final = re.compile(r"latest|.*\.(pt|pth|ckpt|bin|safetensors|distcp|npz|h5|msgpack|tar|pkl)", re.IGNORECASE)
