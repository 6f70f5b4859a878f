//! Executes the programs of a job over a machine.
