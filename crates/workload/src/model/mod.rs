//! Model architectures: parameters, operations, memory.
