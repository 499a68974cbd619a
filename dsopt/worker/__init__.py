"""The worker: asks what to run next, runs it and records the outcome, until its studies are finished."""
