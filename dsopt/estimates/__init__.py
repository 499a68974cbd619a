"""What fits before anything runs: parameter counts, ZeRO's formulas, DeepSpeed's estimators, the tables."""
