//! LogGOPS.
