"""Programs that measure what docs/benchmarks.md says. Each prints its figures; none is part of the package."""
