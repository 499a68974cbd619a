"""Tuners side by side, on simulated clusters and on grids that were recorded for real."""
