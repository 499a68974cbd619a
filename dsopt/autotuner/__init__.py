"""Coming from DeepSpeed's autotuner: its results become trials of a study, its set-up a study file."""
