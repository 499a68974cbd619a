"""A simulated cluster: step times and memory of a training run, computed from shapes and data sheets."""
