"""What is wrong with a machine, a storage and a study, before hours are spent on runs."""
