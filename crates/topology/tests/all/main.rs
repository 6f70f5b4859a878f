//! Shapes, routes, faults and imported graphs from outside.

mod balance;
mod bcube_rule;
mod clos_rule;
mod dragonfly_load;
mod dragonfly_rule;
mod hamming_rule;
mod import_common;
mod import_export;
mod import_formats;
mod import_graph;
mod import_recognise;
mod mesh_rule;
mod paths;
mod regions_rule;
mod spec;
mod support;
mod torus_rule;
mod weights;
