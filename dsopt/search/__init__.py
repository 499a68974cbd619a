"""What to run next: memory, step times, cost model, sampler, pruners, tuners, plan."""
