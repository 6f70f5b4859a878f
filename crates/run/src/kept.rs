//! Which values of a run its journal keeps, field by field.

use windtunnel_cluster::calendar::{Certainty, Episode, EpisodeJob, Rerun};
use windtunnel_cluster::explain::Breakdown;
use windtunnel_fabric::packet::Reordering;

use crate::clock::Origin;
use crate::exchanged::ExchangeSummary;
use crate::journal::structures;
use crate::record::Counts;
use crate::recorder::{Held, Iteration};
use crate::simulated::Simulated;
use crate::summary::{
    BackgroundSummary, FlowSummary, LinkLoad, NetworkSummary, ReorderBuffers, TransportSummary,
};
use crate::table::Batch;

structures! {
    Episode { number, jobs, horizon, rerun }
    Rerun { before, gone }
    EpisodeJob { job, placement, start, phase, left, done_before, loading, age, redone, boundary }
    Simulated { origin, seen, held, begun, until, certainty, used, cancelled }
    Origin { epoch, ps }
    Iteration {
        number, start_ps, finish_ps, lag_ps, ranks, critical_rank, breakdown, reused, weight, ended, whole,
    }
    Breakdown { compute, exposed, bubble, straggler, host }
    Held { of, finish_ps, table, batch }
    Batch { columns }
    Certainty { good_for, error }
    Counts { simulated, solves, flows }
    FlowSummary { count, fct_mean_s, fct_p50_s, fct_p99_s, fct_max_s }
    LinkLoad { name, tier, utilisation, bytes }
    ExchangeSummary { whole, messages, by_message, because, error_bound }
    Reordering { most_packets, most_bytes, queue_pairs }
    ReorderBuffers { queue_pairs, max_packets, max_bytes, p50_packets, p99_packets, sum }
    BackgroundSummary { begun, arrived, bytes, load, fct_mean_s, fct_p50_s, fct_p99_s, fct_max_s }
    TransportSummary { figures, deliveries }
    NetworkSummary {
        messages, bytes_delivered, undone_messages, undone_bytes, simulated_messages, simulated_bytes, exchanges,
        packets_delivered, packets_dropped, control_packets_dropped, loss_rate, ecn_marked, pfc_pause_s, pfc_pause_by_tier_s, pfc_pauses,
        retransmissions, timeouts, timeout_wait_s, mean_queueing_delay_s, reordered_packets, reorder_buffers, link_down, corrupted,
        packets_trimmed, transport, background, path_unevenness, detoured_pairs, detoured, uncaptured, links_most_loaded, queueing_s,
        queued_packets,
    }
}
