"""The version of dsopt; it is imported from below as well as from above."""

__version__ = "0.1.0"
