"""What is asked: the launch command, the DeepSpeed configuration, the study spec, the tuning space."""
