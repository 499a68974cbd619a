"""Runs the user's script under observation, in the training process: `deepspeed --module dsopt.probe train.py …`."""
