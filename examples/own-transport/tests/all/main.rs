//! The scenario beside this crate, with the modules that it names.

mod aimd;
mod ask;
mod beside;
