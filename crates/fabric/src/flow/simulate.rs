//! Flows on links, without hosts, headers or hashing: the solver by itself.

use super::instant::Instant;
use super::system::{FlowSystem, power_of_two};

/// What is wrong with the input of [`simulate_flows`].
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimulateError {
    /// Two arrays that should have the same length have not.
    #[error("{what}: expected {expected} values, found {found}")]
    Length {
        /// Which array.
        what: &'static str,
        /// How long it should be.
        expected: usize,
        /// How long it is.
        found: usize,
    },
    /// A value of a link.
    #[error("links[{link}].{field} is {value}, expected {expected}")]
    Link {
        /// Index of the link.
        link: usize,
        /// `capacity` or `latency`.
        field: &'static str,
        /// What was found.
        value: f64,
        /// What fits.
        expected: &'static str,
    },
    /// A value of a flow.
    #[error("flows[{flow}].{field} is {value}, expected {expected}")]
    Flow {
        /// Index of the flow.
        flow: usize,
        /// `bytes`, `start` or `weight`.
        field: &'static str,
        /// What was found.
        value: f64,
        /// What fits.
        expected: &'static str,
    },
    /// A path that leaves the links.
    #[error("flows[{flow}].path[{position}] is {link}, expected a link below {links}")]
    Path {
        /// Index of the flow.
        flow: usize,
        /// Position in its path.
        position: usize,
        /// What was found.
        link: u32,
        /// Number of links.
        links: usize,
    },
    /// Offsets that do not ascend.
    #[error("offsets[{flow}] is {found}, expected at least {expected}")]
    Offsets {
        /// Index of the flow.
        flow: usize,
        /// What was found.
        found: usize,
        /// The offset before.
        expected: usize,
    },
}

const NOT_NEGATIVE: &str = "a finite number, zero or more";
/// Bounds a capacity or weight: their squares are still normal doubles.
const POSITIVE: std::ops::RangeInclusive<f64> = 1e-150..=1e150;
/// What [`POSITIVE`] says.
const POSITIVE_TEXT: &str = "a positive number from 1e-150 to 1e150";

/// Finish times in seconds of flows that share links by weighted max-min fairness, in the order of the flows.
///
/// Link l takes `capacities[l]` bit/s and adds `latencies[l]` seconds. Flow f carries `bytes[f]` from `starts[f]` seconds
/// over `path_links[offsets[f]..offsets[f + 1]]` with weight `weights[f]`. It finishes when its last byte has left the
/// bottleneck, plus the latencies of its path; a link named twice counts twice in both. A flow of an empty path or
/// of 0 bytes finishes at start + latency. Latency never changes a share.
///
/// # Errors
/// [`SimulateError`] names the link or flow and the field that is NaN, infinite, negative or, where it divides, zero.
pub fn simulate_flows(
    capacities: &[f64],
    latencies: &[f64],
    offsets: &[usize],
    path_links: &[u32],
    bytes: &[f64],
    starts: &[f64],
    weights: &[f64],
) -> Result<Vec<f64>, SimulateError> {
    check(capacities, latencies, offsets, path_links, bytes, starts, weights)?;
    let flows = bytes.len();
    let path = |flow: usize| &path_links[offsets[flow]..offsets[flow + 1]];
    let latency = |flow: usize| path(flow).iter().map(|&link| latencies[link as usize]).sum::<f64>();

    // At any time some link is full, so the time that all flows would take one by one over one link at a time bounds the
    // makespan. The tick, a power of two seconds, divides it into 2^50: the solver's dust is far below 1e-9 of anything.
    let serial =
        |flow: usize| path(flow).iter().map(|&l| bytes[flow] * 8.0 / capacities[l as usize]).sum::<f64>();
    let work: f64 = (0..flows).map(serial).sum();
    let horizon = (starts.iter().copied().fold(0.0, f64::max) + work).max(f64::MIN_POSITIVE);
    let exponent = |x: f64| (x.to_bits() >> 52) as i64 - 1_023;
    let log2_tick = (exponent(horizon) + 1 - 50).clamp(-1_000, 1_000);
    let (ticks_per_second, tick) = (power_of_two(-log2_tick), power_of_two(log2_tick));

    // Weights are scaled so that all loads together fit the solver's integers.
    let total: f64 = (0..flows).map(|flow| weights[flow] * path(flow).len() as f64).sum();
    let scale = power_of_two(-(exponent(total.max(f64::MIN_POSITIVE)) + 1).clamp(-1_000, 1_000));
    let mut system = FlowSystem::with_load_bits(capacities, 60).map_err(|error| SimulateError::Link {
        link: error.link as usize,
        field: "capacity",
        value: error.capacity,
        expected: POSITIVE_TEXT,
    })?;

    let mut order: Vec<usize> = (0..flows).collect();
    order.sort_by(|&a, &b| starts[a].total_cmp(&starts[b]));
    let mut finish = vec![0.0; flows];
    let mut ended = Vec::new();
    let mut leave = |system: &mut FlowSystem, limit: Instant| {
        while let Some(batch) = system.depart_until(limit, &mut ended) {
            let at = batch.at.tick() as f64 * tick + batch.at.fraction() * tick;
            for flow in ended.drain(..) {
                finish[flow as usize] = at + latency(flow as usize);
            }
        }
    };
    for flow in order {
        if path(flow).is_empty() || bytes[flow] == 0.0 {
            continue;
        }
        let start = Instant::ZERO.after(starts[flow] * ticks_per_second);
        leave(&mut system, start);
        let links = path(flow).iter().map(|&link| (link, 1.0));
        let volume = bytes[flow] * 8.0 * ticks_per_second;
        system.start(start, volume, weights[flow] * scale, links, flow as u64);
    }
    leave(&mut system, Instant::NEVER);
    for flow in 0..flows {
        if path(flow).is_empty() || bytes[flow] == 0.0 {
            finish[flow] = starts[flow] + latency(flow);
        }
    }
    Ok(finish)
}

fn check(
    capacities: &[f64],
    latencies: &[f64],
    offsets: &[usize],
    path_links: &[u32],
    bytes: &[f64],
    starts: &[f64],
    weights: &[f64],
) -> Result<(), SimulateError> {
    let (links, flows) = (capacities.len(), bytes.len());
    for (what, expected, found) in [
        ("latencies", links, latencies.len()),
        ("offsets", flows + 1, offsets.len()),
        ("starts", flows, starts.len()),
        ("weights", flows, weights.len()),
    ] {
        if expected != found {
            return Err(SimulateError::Length { what, expected, found });
        }
    }
    let not_negative = |value: f64| value.is_finite() && value >= 0.0;
    for link in 0..links {
        if !POSITIVE.contains(&capacities[link]) {
            let (field, value) = ("capacity", capacities[link]);
            return Err(SimulateError::Link { link, field, value, expected: POSITIVE_TEXT });
        }
        if !not_negative(latencies[link]) {
            let (field, value) = ("latency", latencies[link]);
            return Err(SimulateError::Link { link, field, value, expected: NOT_NEGATIVE });
        }
    }
    if offsets[flows] > path_links.len() {
        let (expected, found) = (offsets[flows], path_links.len());
        return Err(SimulateError::Length { what: "path_links", expected, found });
    }
    for flow in 0..flows {
        if offsets[flow + 1] < offsets[flow] {
            let (found, expected) = (offsets[flow + 1], offsets[flow]);
            return Err(SimulateError::Offsets { flow: flow + 1, found, expected });
        }
        for (position, &link) in path_links[offsets[flow]..offsets[flow + 1]].iter().enumerate() {
            if link as usize >= links {
                return Err(SimulateError::Path { flow, position, link, links });
            }
        }
        for (field, value) in [("bytes", bytes[flow]), ("start", starts[flow])] {
            if !not_negative(value) {
                return Err(SimulateError::Flow { flow, field, value, expected: NOT_NEGATIVE });
            }
        }
        if !POSITIVE.contains(&weights[flow]) {
            let (field, value) = ("weight", weights[flow]);
            return Err(SimulateError::Flow { flow, field, value, expected: POSITIVE_TEXT });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two links of 8 and 4 byte/s, latencies 0.5 and 0.25 s.
    fn two_links(
        paths: &[&[u32]],
        bytes: &[f64],
        starts: &[f64],
        weights: &[f64],
    ) -> Result<Vec<f64>, SimulateError> {
        let mut offsets = vec![0];
        offsets.extend(paths.iter().scan(0, |sum, path| {
            *sum += path.len();
            Some(*sum)
        }));
        simulate_flows(&[64.0, 32.0], &[0.5, 0.25], &offsets, &paths.concat(), bytes, starts, weights)
    }

    #[test]
    fn closed_forms() {
        // Alone: the bottleneck, then the latencies; named twice: twice in both; nothing to send or nowhere to go.
        let alone = |path: &[u32], bytes| two_links(&[path], &[bytes], &[3.0], &[1.0]).unwrap()[0];
        assert_eq!(alone(&[0, 1], 16.0), 3.0 + 4.0 + 0.75);
        assert_eq!(alone(&[0, 0], 16.0), 3.0 + 4.0 + 1.0);
        assert_eq!(alone(&[], 16.0), 3.0);
        assert_eq!(alone(&[1], 0.0), 3.25);
        // Weights 3 and 1 on 8 byte/s; the second has the link to itself from 4 s on, with 8 of 16 bytes left.
        let finish = two_links(&[&[0], &[0]], &[24.0, 16.0], &[0.0, 0.0], &[3.0, 1.0]).unwrap();
        assert_eq!(finish, [4.5, 5.5]);
        // A latecomer halves the rate: 8 bytes alone by 1 s, then 4 byte/s each.
        let finish = two_links(&[&[0], &[0]], &[16.0, 16.0], &[0.0, 1.0], &[1.0, 1.0]).unwrap();
        assert_eq!(finish, [3.5, 4.5]);
    }

    #[test]
    fn every_bad_value_is_named() {
        let text = |result: Result<Vec<f64>, SimulateError>| result.unwrap_err().to_string();
        let flow = |bytes, start, weight| {
            text(two_links(&[&[0], &[1]], &[1.0, bytes], &[0.0, start], &[1.0, weight]))
        };
        assert_eq!(flow(f64::NAN, 0.0, 1.0), "flows[1].bytes is NaN, expected a finite number, zero or more");
        assert_eq!(flow(1.0, -2.0, 1.0), "flows[1].start is -2, expected a finite number, zero or more");
        assert_eq!(
            flow(1.0, 0.0, 0.0),
            "flows[1].weight is 0, expected a positive number from 1e-150 to 1e150"
        );
        let path = two_links(&[&[0, 5]], &[1.0], &[0.0], &[1.0]);
        assert_eq!(text(path), "flows[0].path[1] is 5, expected a link below 2");
        let link =
            |capacity, latency| text(simulate_flows(&[capacity], &[latency], &[0], &[], &[], &[], &[]));
        assert_eq!(link(0.0, 0.0), "links[0].capacity is 0, expected a positive number from 1e-150 to 1e150");
        assert_eq!(
            link(1.0, f64::INFINITY),
            "links[0].latency is inf, expected a finite number, zero or more"
        );
        let short = simulate_flows(&[1.0], &[0.0], &[0, 1], &[0], &[1.0], &[], &[1.0]);
        assert_eq!(text(short), "starts: expected 1 values, found 0");
        let descending = simulate_flows(&[1.0], &[0.0], &[2, 0], &[0, 0], &[1.0], &[0.0], &[1.0]);
        assert_eq!(text(descending), "offsets[1] is 0, expected at least 2");
    }
}
