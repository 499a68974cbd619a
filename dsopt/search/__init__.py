"""What to run next: memory, micro-batch range, cost model, sampler, pruners, plan."""
