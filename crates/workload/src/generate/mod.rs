//! From a model and a parallelism layout to programs.
