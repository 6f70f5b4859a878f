//! The host model: stream clocks, NIC clocks and the tag matcher, the same at every fidelity.
