"""Runs on a Ray cluster: what speaks with Ray, what it keeps on each node, and what connects a run with that."""
