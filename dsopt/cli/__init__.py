"""The command line: parses, calls plain functions, prints, picks exit codes."""
