"""Real clusters on one machine: nodes, and Slurm, OpenSSH and Ray on them. `conftest.py` has the fixtures."""
