"""Starts and ends the ranks of a run, and says on which devices."""
