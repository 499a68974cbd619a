"""`python -m dsopt` is the `dsopt` command."""

from dsopt.cli.main import main

main()
