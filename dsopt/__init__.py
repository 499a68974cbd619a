"""dsopt finds the fastest DeepSpeed configuration for a training job, by short real runs of it."""

__version__ = "0.1.0"
