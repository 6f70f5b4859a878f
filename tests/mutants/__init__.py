"""Important lines changed one at a time: `make mutants`."""
