"""What the user asks for: the launch command, the DeepSpeed configuration, the study spec, the tuning space."""
