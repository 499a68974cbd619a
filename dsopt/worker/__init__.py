"""The worker: asks what to run next, runs it, records what came of it, until its studies are finished."""
