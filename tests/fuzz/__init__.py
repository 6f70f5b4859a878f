"""Random scenarios against rules that every run must satisfy: `make fuzz`."""
