//! Properties of the max-min solver, and a slow textbook filling to compare with.

use proptest::prelude::*;
use windtunnel_fabric::flow::{FlowId, FlowSystem, Instant, simulate_flows};
use windtunnel_kernel::RandomStream;

#[derive(Clone, Debug)]
struct Flow {
    path: Vec<(u32, f64)>,
    weight: f64,
    volume: f64,
    start: u64,
}

#[derive(Clone, Debug)]
struct System {
    capacities: Vec<f64>,
    flows: Vec<Flow>,
}

/// Small systems, half of them full of ties: equal capacities, weights and volumes, whole multiplicities.
fn system(links: usize, flows: usize) -> impl Strategy<Value = System> {
    (1..=links, 1..=flows, any::<bool>(), any::<u64>()).prop_map(|(links, flows, ties, seed)| {
        let mut random = RandomStream::new(seed, "systems", 0);
        let mut pick = |tied: &[f64], low: f64, high: f64| {
            if ties {
                tied[random.below(tied.len() as u64) as usize]
            } else {
                low + (high - low) * random.uniform()
            }
        };
        let capacities = (0..links).map(|_| pick(&[100.0, 200.0, 400.0], 1.0, 500.0)).collect();
        let mut flow = || {
            let hops = pick(&[1.0, 2.0, 3.0, 4.0], 1.0, 5.0) as usize;
            let mut hop = || {
                let link = (pick(&[0.1, 0.3, 0.5, 0.7, 0.9], 0.0, 1.0) * links as f64) as u32;
                (link, pick(&[1.0, 1.0, 1.0, 0.5, 2.0], 0.01, 3.0))
            };
            Flow {
                path: (0..hops).map(|_| hop()).collect(),
                weight: pick(&[1.0, 1.0, 1.0, 2.0, 3.0], 0.05, 8.0),
                volume: pick(&[1e11, 2e11], 1e8, 1e12),
                start: pick(&[0.0, 0.0, 1e9], 0.0, 1e10) as u64,
            }
        };
        System { flows: (0..flows).map(|_| flow()).collect(), capacities }
    })
}

/// Textbook progressive filling: rates of all flows.
fn textbook_rates(capacities: &[f64], flows: &[&Flow]) -> Vec<f64> {
    let mut left = capacities.to_vec();
    let mut level: Vec<Option<f64>> = vec![None; flows.len()];
    while level.iter().any(Option::is_none) {
        let mut open = vec![0.0; capacities.len()];
        for (flow, _) in flows.iter().zip(&level).filter(|(_, level)| level.is_none()) {
            for &(link, multiplicity) in &flow.path {
                open[link as usize] += multiplicity * flow.weight;
            }
        }
        let used = (0..capacities.len()).filter(|&link| open[link] > 0.0);
        let (link, share) =
            used.map(|link| (link, left[link] / open[link])).min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        for (flow, level) in flows.iter().zip(&mut level) {
            if level.is_none() && flow.path.iter().any(|hop| hop.0 as usize == link) {
                *level = Some(share);
                for &(link, multiplicity) in &flow.path {
                    left[link as usize] -= multiplicity * flow.weight * share;
                }
            }
        }
    }
    flows.iter().zip(level).map(|(flow, level)| flow.weight * level.unwrap()).collect()
}

/// Finish times by solving everything from scratch at every event.
fn textbook_finish(system: &System) -> Vec<f64> {
    let n = system.flows.len();
    let mut finish = vec![f64::NAN; n];
    let mut left: Vec<f64> = system.flows.iter().map(|flow| flow.volume).collect();
    let mut now = 0.0;
    loop {
        let started = |flow: usize| system.flows[flow].start as f64 <= now;
        let live: Vec<usize> = (0..n).filter(|&f| finish[f].is_nan() && started(f)).collect();
        let next_start = (0..n)
            .filter(|&f| finish[f].is_nan() && !started(f))
            .map(|f| system.flows[f].start as f64)
            .fold(f64::INFINITY, f64::min);
        if live.is_empty() && next_start == f64::INFINITY {
            return finish;
        }
        let flows: Vec<&Flow> = live.iter().map(|&f| &system.flows[f]).collect();
        let rates = textbook_rates(&system.capacities, &flows);
        let first = live.iter().zip(&rates).map(|(&f, rate)| left[f] / rate).fold(f64::INFINITY, f64::min);
        let step = first.min(next_start - now);
        for (&flow, rate) in live.iter().zip(&rates) {
            left[flow] -= rate * step;
            if left[flow] <= 1e-12 * system.flows[flow].volume {
                finish[flow] = now + step;
            }
        }
        now = if step < first { next_start } else { now + step };
    }
}

fn start(engine: &mut FlowSystem, flow: &Flow, at: Instant, token: usize) -> FlowId {
    engine.start(at, flow.volume, flow.weight, flow.path.iter().copied(), token as u64)
}

/// Runs a system in the order of starts (ties in the order given) and calls `look` after every event with the
/// flows alive.
fn run(
    system: &System,
    order: impl IntoIterator<Item = usize>,
    mut look: impl FnMut(&mut FlowSystem, &[(usize, FlowId)]),
) -> Vec<Instant> {
    let mut engine = FlowSystem::new(&system.capacities).unwrap();
    let mut order = Vec::from_iter(order);
    order.sort_by_key(|&flow| system.flows[flow].start);
    let mut finish = vec![Instant::NEVER; system.flows.len()];
    let (mut live, mut ended, mut next) = (Vec::new(), Vec::new(), 0);
    loop {
        let start_at = order.get(next).map_or(Instant::NEVER, |&flow| Instant::at(system.flows[flow].start));
        if let Some(batch) = engine.depart_until(start_at, &mut ended) {
            for token in ended.drain(..) {
                finish[token as usize] = batch.at;
                live.retain(|&(flow, _)| flow != token as usize);
            }
        } else if next < order.len() {
            while next < order.len() && Instant::at(system.flows[order[next]].start) == start_at {
                let id = start(&mut engine, &system.flows[order[next]], start_at, order[next]);
                live.push((order[next], id));
                next += 1;
            }
        } else {
            assert_eq!(engine.live(), 0);
            return finish;
        }
        look(&mut engine, &live);
    }
}

fn ticks(instant: Instant) -> f64 {
    instant.tick() as f64 + instant.fraction()
}

/// Every flow has a full link on which no other flow has a larger rate per weight, and no link is overfull.
fn assert_max_min(
    system: &System,
    engine: &mut FlowSystem,
    live: &[(usize, FlowId)],
) -> Result<(), TestCaseError> {
    let mut used = vec![0.0; system.capacities.len()];
    let mut highest = vec![0.0f64; system.capacities.len()];
    for &(flow, id) in live {
        let level = engine.level(id);
        for &(link, multiplicity) in &system.flows[flow].path {
            used[link as usize] += multiplicity * system.flows[flow].weight * level;
            highest[link as usize] = highest[link as usize].max(level);
        }
    }
    for (link, &capacity) in system.capacities.iter().enumerate() {
        prop_assert!(used[link] <= capacity * (1.0 + 1e-9), "link {link}: {} of {capacity}", used[link]);
    }
    for &(flow, id) in live {
        let level = engine.level(id);
        let held = system.flows[flow].path.iter().any(|&(link, _)| {
            let link = link as usize;
            used[link] >= system.capacities[link] * (1.0 - 1e-9) && level >= highest[link] * (1.0 - 1e-9)
        });
        prop_assert!(held, "flow {flow} at {level} could go faster");
    }
    Ok(())
}

/// Levels and groups of the flows alive equal those of a new system that holds just them, started in another order.
fn assert_same_from_scratch(
    system: &System,
    engine: &mut FlowSystem,
    live: &[(usize, FlowId)],
    random: &mut RandomStream,
) -> Result<(), TestCaseError> {
    let mut scratch = FlowSystem::new(&system.capacities).unwrap();
    let mut twins = Vec::new();
    for index in random.permutation(live.len()) {
        let (flow, id) = live[index as usize];
        twins.push((flow, id, start(&mut scratch, &system.flows[flow], Instant::ZERO, flow)));
    }
    for (flow, id, twin) in twins {
        let found = (engine.level(id), engine.bottleneck(id));
        prop_assert_eq!(found, (scratch.level(twin), scratch.bottleneck(twin)), "flow {}", flow);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_solution_is_max_min(system in system(12, 30)) {
        let mut verdict = Ok(());
        run(&system, 0..system.flows.len(), |engine, live| {
            if verdict.is_ok() {
                verdict = assert_max_min(&system, engine, live);
            }
        });
        verdict?;
    }

    #[test]
    fn an_incremental_solution_is_that_from_scratch_bit_by_bit(system in system(12, 30), seed in any::<u64>()) {
        let mut random = RandomStream::new(seed, "orders", 0);
        let mut verdict = Ok(());
        run(&system, 0..system.flows.len(), |engine, live| {
            if verdict.is_ok() {
                verdict = assert_same_from_scratch(&system, engine, live, &mut random);
            }
        });
        verdict?;
    }

    #[test]
    fn finish_times_are_those_of_the_textbook(system in system(8, 14)) {
        let finish = run(&system, 0..system.flows.len(), |_, _| ());
        for (flow, (found, expected)) in finish.iter().zip(textbook_finish(&system)).enumerate() {
            // An end is snapped to 1/256 tick.
            let error = (ticks(*found) - expected).abs();
            prop_assert!(error < 1e-9 * expected + 14.0 / 512.0, "flow {flow}: {found:?}, expected {expected}");
        }
    }

    #[test]
    fn the_order_of_starts_at_one_instant_does_not_matter(system in system(10, 30), seed in any::<u64>()) {
        let order = RandomStream::new(seed, "orders", 1).permutation(system.flows.len());
        let straight = run(&system, 0..system.flows.len(), |_, _| ());
        prop_assert_eq!(straight, run(&system, order.into_iter().map(|flow| flow as usize), |_, _| ()));
    }

    #[test]
    fn another_component_changes_nothing(system in system(8, 20), other in system(8, 20)) {
        let alone = run(&system, 0..system.flows.len(), |_, _| ());
        let (mut both, offset) = (system.clone(), system.capacities.len() as u32);
        both.capacities.extend(&other.capacities);
        both.flows.extend(other.flows.into_iter().map(|mut flow| {
            flow.path.iter_mut().for_each(|hop| hop.0 += offset);
            flow
        }));
        let together = run(&both, 0..both.flows.len(), |_, _| ());
        prop_assert_eq!(&alone[..], &together[..alone.len()]);
    }

    #[test]
    fn links_carry_what_their_flows_carried(system in system(10, 30)) {
        let mut engine = FlowSystem::new(&system.capacities).unwrap();
        engine.observe_links();
        let mut order: Vec<usize> = (0..system.flows.len()).collect();
        order.sort_by_key(|&flow| system.flows[flow].start);
        let mut ended = Vec::new();
        for flow in order {
            let at = Instant::at(system.flows[flow].start);
            while engine.depart_until(at, &mut ended).is_some() {}
            start(&mut engine, &system.flows[flow], at, flow);
        }
        while engine.depart_until(Instant::NEVER, &mut ended).is_some() {}
        prop_assert_eq!(ended.len(), system.flows.len());
        let meter = engine.meter().unwrap();
        for link in 0..system.capacities.len() {
            let hops = system.flows.iter().flat_map(|flow| flow.path.iter().map(|hop| (hop, flow.volume)));
            let expected: f64 = hops.filter(|(hop, _)| hop.0 as usize == link).map(|(hop, v)| hop.1 * v).sum();
            let found = meter.volume(link);
            // Each end is snapped to 1/256 tick.
            let slack = 1e-9 * expected + system.capacities[link] * system.flows.len() as f64 / 512.0;
            prop_assert!((found - expected).abs() <= slack, "link {link}: {found}, expected {expected}");
            let binned: f64 = meter.bins(link, meter.width_log2()).map_or(0.0, |bins| bins.iter().sum());
            prop_assert!((binned - found).abs() <= 1e-9 * found);
        }
    }

    #[test]
    fn simulate_flows_agrees_with_the_textbook_in_any_unit(system in system(8, 14), scale in -12i32..12) {
        // The textbook's unit of time is 10^scale seconds, its unit of volume a byte.
        let factor: f64 = format!("1e{scale}").parse().unwrap();
        let (mut offsets, mut path_links, mut whole) = (vec![0], Vec::new(), system.clone());
        for flow in &mut whole.flows {
            flow.path.iter_mut().for_each(|hop| hop.1 = 1.0);
            path_links.extend(flow.path.iter().map(|hop| hop.0));
            offsets.push(path_links.len());
        }
        let column = |of: fn(&Flow) -> f64| whole.flows.iter().map(of).collect::<Vec<f64>>();
        let starts: Vec<f64> = column(|flow| flow.start as f64).iter().map(|start| start * factor).collect();
        let capacities: Vec<f64> = whole.capacities.iter().map(|capacity| capacity * 8.0 / factor).collect();
        let finish = simulate_flows(
            &capacities,
            &vec![0.0; capacities.len()],
            &offsets,
            &path_links,
            &column(|flow| flow.volume),
            &starts,
            &column(|flow| flow.weight),
        )
        .unwrap();
        for (flow, (found, expected)) in finish.iter().zip(textbook_finish(&whole)).enumerate() {
            prop_assert!((found / factor / expected - 1.0).abs() < 1e-9, "flow {flow}: {found}, {expected}");
        }
    }
}
