//! Requests as a cluster takes them: in order of submission, and the machine they run on.

use super::{JobRequest, Settings};
use crate::cluster::{Job, Machine};
use crate::life::Lives;
use crate::placement::Placement;

/// Jobs as a cluster knows them: in order of submission.
pub struct Order {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Index of each as it was given.
    pub given: Vec<usize>,
}

/// Places of `requests` in order of submission.
pub fn in_order(requests: &[JobRequest]) -> Vec<usize> {
    let mut given: Vec<usize> = (0..requests.len()).collect();
    given.sort_by_key(|&job| (requests[job].submit, job));
    given
}

/// `requests` in order, and the machine they run on.
pub fn order<'a>(requests: &[JobRequest], settings: &Settings<'a>) -> (Order, Machine<'a>) {
    let given = in_order(requests);
    let mut placements: Vec<&'static dyn Placement> = Vec::new();
    let mut job = |&index: &usize| {
        let request = &requests[index];
        let known = placements.iter().position(|placement| placement.name() == request.placement.name());
        let placement = known.unwrap_or_else(|| {
            placements.push(request.placement);
            placements.len() - 1
        });
        Job {
            submit: request.submit,
            estimate: request.estimate.ns_ceil().max(1),
            deadline: request.deadline,
            gpus: request.gpus as u32,
            priority: request.priority,
            locality: request.locality,
            placement: placement as u8,
        }
    };
    let jobs = given.iter().map(&mut job).collect();
    let machine = Machine {
        endpoints: settings.endpoints,
        endpoints_per_host: settings.endpoints_per_host,
        storage: settings.storage,
        regions: settings.regions,
        reaction_delay: settings.reaction_delay,
        lives: Lives::Each(given.iter().map(|&job| requests[job].life.clone()).collect()),
        upkeep: settings.upkeep,
        seed: settings.seed,
        queue: settings.queue,
        placements: placements.into_iter().map(|placement| placement as &dyn Placement).collect(),
        locator: settings.locator,
        listener: settings.listener,
    };
    (Order { jobs, given }, machine)
}
