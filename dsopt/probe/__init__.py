"""Runs the user's script under observation, inside the training process: `deepspeed --module dsopt.probe train.py …`."""
