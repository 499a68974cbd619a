"""What is kept: dsopt's tables beside Optuna's, in one database."""
