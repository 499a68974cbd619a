"""What people and programs do with studies; the command line is written on it.

`import dsopt` has its public names (see `docs/api.md`). Importing this package imports none of its modules.
"""
