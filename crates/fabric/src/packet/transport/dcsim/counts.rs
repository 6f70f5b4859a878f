//! What a NIC port under DCSIM counts.

use crate::packet::transport::dispatch::Tally;

/// Figures of a port.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub sims: u64,
    pub sims_arrived: u64,
    pub sims_answered: u64,
    pub sims_given_up: u64,
    pub late: u64,
    pub unused: u64,
    pub bound: u64,
    pub left: u64,
    pub blind: u64,
    pub overdue: u64,
    pub data_acks: u64,
    pub longest: u64,
}

impl Counts {
    /// Adds all of them, by name.
    pub(super) fn tell(&self, tally: &mut Tally) {
        let Counts {
            sims,
            sims_arrived,
            sims_answered,
            sims_given_up,
            late,
            unused,
            bound,
            left,
            blind,
            overdue,
            data_acks,
            longest,
        } = *self;
        for (name, value) in [
            ("sims_sent", sims),
            ("sims_arrived", sims_arrived),
            ("sim_acks_in_time", sims_answered),
            ("sim_acks_late", late),
            ("sim_acks_unused", unused),
            ("sims_given_up", sims_given_up),
            ("data_bound", bound),
            ("data_left", left),
            ("data_blind", blind),
            ("data_overdue", overdue),
            ("data_acks_sent", data_acks),
        ] {
            tally.add(name, value);
        }
        tally.raise("sim_round_trip_longest_ps", longest);
    }
}
