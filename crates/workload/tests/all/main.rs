//! GOAL files, hand-written workloads and the work of models from outside.

mod goal_binary;
mod goal_matching;
mod goal_round_trip;
mod goal_text;
mod goal_tools;
mod handwritten;
mod kernels_by_tiles;
mod model_sheets;
mod model_work;
mod regroup;
