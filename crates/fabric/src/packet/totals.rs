//! What an engine tells of itself: its clock, its totals, reports of its ports.

use windtunnel_kernel::{Span, Time};

use super::counters::Counters;
use super::engine::Engine;
use super::reorder::Reordering;
use super::statistics::{PauseCounters, PortCounters, PortReport};
use super::transport::Transport;

impl<T: Transport> Engine<T> {
    /// The clock: the instant of the last event.
    pub fn now(&self) -> Time {
        Time::from_ps(self.timeline.now())
    }

    /// Time of the next event, [`Time::NEVER`] if there is none.
    #[inline]
    pub fn next_time(&mut self) -> Time {
        if self.has_halted() {
            return Time::NEVER;
        }
        self.timeline.next_time()
    }

    /// Totals so far.
    pub fn totals(&self) -> Counters {
        self.account.totals
    }

    /// Most queue pairs that were open at once: places are used again.
    pub fn places(&self) -> usize {
        self.pairs.places()
    }

    /// Packets in the network.
    pub fn packets_live(&self) -> u32 {
        self.packets.live()
    }

    /// Data packets and control packets sent over a link, over all links.
    pub fn packet_hops(&self) -> (u64, u64) {
        self.fabric.packet_hops()
    }

    /// Sum over data packets of the time between joining a queue and the start of transmission.
    pub fn queueing(&self) -> Span {
        self.fabric.queueing()
    }

    /// Whether a packet of a message that somebody waits for was dropped, and nothing sends it again.
    pub fn has_lost_for_good(&self) -> bool {
        self.account.has_lost_for_good()
    }

    /// Whether a message that somebody waits for can never arrive: without recovery, or by a queue pair that has heard
    /// nothing for long. In the second case the engine has stopped.
    pub fn is_hopeless(&self) -> bool {
        self.account.has_lost_for_good() || self.has_halted()
    }

    /// NICs of a queue pair that has heard nothing for so long that the engine has stopped: sender and receiver.
    pub fn silent_pair(&self) -> Option<[u32; 2]> {
        self.account.given_up()
    }

    /// What queue pairs held out of order until now.
    pub fn reordering(&self) -> Reordering {
        let mut sum = self.account.reordering;
        self.pairs.count_held(&mut sum);
        sum
    }

    /// What each port with traffic saw until now, by link.
    pub fn port_reports(&self) -> Vec<PortReport> {
        self.reports_of(|port| (self.counted(port), self.paused_at(port)))
    }

    /// What a port has counted by the clock.
    pub(super) fn counted(&self, port: u32) -> PortCounters {
        self.fabric.counted(port, self.timeline.now())
    }

    /// Times that queues of a port were paused until now, for how long, and packets dropped for it.
    pub(super) fn paused_at(&self, port: u32) -> PauseCounters {
        self.queues.paused_at(port, self.timeline.now())
    }

    /// Reports of the counters that `counters` gives for each port.
    pub(super) fn reports_of(
        &self,
        counters: impl Fn(u32) -> (PortCounters, PauseCounters),
    ) -> Vec<PortReport> {
        let span = Span::from_ps(self.timeline.now());
        let wired = (0..self.fabric.ports.len() as u32).filter(|&port| self.fabric.has_link(port));
        let report = |port: u32| {
            let (counters, PauseCounters { pauses, paused, dropped }) = counters(port);
            let report = counters.report(self.fabric.link_of(port), span);
            PortReport { pauses, paused: Span::from_ps(paused), watchdog_drops: dropped, ..report }
        };
        let mut reports: Vec<PortReport> = wired
            .map(report)
            .filter(|report| report.bytes > 0 || report.drops > 0 || report.pauses > 0)
            .collect();
        reports.sort_by_key(|report| report.link);
        reports
    }

    /// Time that queues of ports were paused until now, over all ports.
    pub fn paused(&self) -> Span {
        Span::from_ps((0..self.queues.stations.len() as u32).map(|port| self.paused_at(port).paused).sum())
    }

    /// Whether pauses wait for one another, or a queue pair will never be heard, and the run is over.
    #[inline]
    pub(super) fn has_halted(&self) -> bool {
        self.account.given_up().is_some() || self.queues.are_stuck()
    }

    /// Messages that have not arrived: the caller's names, in no order that means anything.
    pub fn unfinished(&self) -> Vec<u64> {
        self.pairs.unfinished()
    }
}
