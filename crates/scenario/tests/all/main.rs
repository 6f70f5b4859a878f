//! Scenarios from text to tables.

mod api;
mod backend;
mod bus;
mod carried;
mod cluster;
mod elastic;
mod episodes;
mod exchanges;
mod folding;
mod gradients;
mod horizon;
mod impairments;
mod inputs;
mod interrupted;
mod late_members;
mod loading;
mod lost_for_good;
mod network_keys;
mod operations;
mod packet;
mod progress;
mod reduction;
mod registry;
mod shapes;
mod topology;
