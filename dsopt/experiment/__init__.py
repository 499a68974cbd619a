"""One run: launch, devices, run directory, events, measurement, outcome."""
