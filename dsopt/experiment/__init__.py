"""One run: watched from its launch on, judged, measured; and what came of it."""
