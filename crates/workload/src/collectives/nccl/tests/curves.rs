//! Curves over sizes, rates and cables: what grows with the bytes, what faster links never do, what a run takes of a closed form.

use super::*;

/// A machine without tuner plug-in.
fn machine(hardware: Hardware, constants: Constants) -> Machine {
    Machine {
        hardware,
        settings: Settings::default(),
        rules: Vec::new(),
        constants,
        hosts_of_domain: 1,
        payload: 1.0,
        latency: [windtunnel_kernel::Span::ZERO; 2],
        sites: None,
        kinds: None,
    }
}

const FUNCTIONS: [Function; 7] = [
    Function::AllReduce,
    Function::AllGather,
    Function::ReduceScatter,
    Function::Broadcast,
    Function::Reduce,
    Function::AllToAll,
    Function::SendReceive,
];

#[test]
fn a_choice_takes_longer_for_more_bytes() {
    for hardware in [dgx_h100(), dgx_a100()] {
        let settings = Settings::default();
        let constants = Constants { crowd: [0.05, 0.05, 0.2], proxy: 1e-6, ..Constants::default() };
        for (domains, ranks) in [(1, 2), (1, 8), (2, 1), (2, 8), (16, 8), (64, 4), (512, 8)] {
            let on = Communicator { hardware: &hardware, layout: on(domains, ranks), settings: &settings };
            for function in FUNCTIONS {
                for shift in 3..34 {
                    let choice = on.choose(function, 1 << shift).unwrap();
                    let time = |bytes| on.time_of(function, choice, bytes, &constants);
                    let (less, more) = (time(1 << shift), time(2 << shift));
                    assert!(
                        less <= more * (1.0 + 1e-9),
                        "{function:?} {domains} {ranks} {shift} {less} {more}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_job_pays_what_the_closed_form_says() {
    for hardware in [dgx_h100(), dgx_a100()] {
        let (nic, inside) = (hardware.nic, hardware.scale_up);
        let made = machine(hardware, Constants::default());
        for (n, domain) in [(2, 2), (8, 8), (4, 1), (16, 8), (64, 8), (1024, 4), (4096, 8)] {
            for kind in CollectiveKind::ALL {
                for shift in 3..=34 {
                    let Some(cost) = made.cost(kind, 1 << shift, n, domain) else { continue };
                    let several = domain < n;
                    let (m, all) = (f64::from(domain), f64::from(n));
                    let nics =
                        made.hardware.nic * f64::from(made.hardware.nics) * m / f64::from(made.hardware.gpus);
                    let edge = cost.edge as f64;
                    // What links carry in turn: of every member's NIC, and of its scale-up link.
                    let moving = match (cost.algorithm, several) {
                        (_, false) if kind == CollectiveKind::AllToAll => edge * (all - 1.0) / inside,
                        (_, false) => edge / inside,
                        (crate::collectives::Algorithm::MultiRing, _) => {
                            (edge * m / nics).max(edge * (m - 1.0) / inside)
                        }
                        (crate::collectives::Algorithm::Direct, _) => {
                            (edge * m * (all - m) / nics).max(edge * (m - 1.0) / inside)
                        }
                        _ => edge / nic.min(nics).min(inside),
                    };
                    let whole = cost.before.seconds() + moving;
                    // An edge has at least one byte, and at most half of one is rounded.
                    let rounding = (all / nic).max(1e-9);
                    assert!(
                        (whole - cost.seconds).abs() < 0.001 * cost.seconds + rounding,
                        "{kind:?} {n} {domain} {shift}: {whole} {}",
                        cost.seconds
                    );
                }
            }
        }
    }
}

#[test]
fn more_bytes_never_take_less_where_nobody_has_measured() {
    let constants = Constants {
        even: true,
        crowd: [0.05, 0.05, 0.15],
        proxy: 0.3e-6,
        share_network: [0.23, 0.76, 0.81],
        ..Constants::default()
    };
    for (hardware, ll128) in
        [(dgx_h100(), true), (dgx_h100(), false), (dgx_a100(), true), (dgx_a100(), false)]
    {
        let hardware = Hardware { ll128_between: ll128, ..hardware };
        let settings = Settings::default();
        for (domains, ranks) in [(1, 2), (1, 4), (1, 8), (2, 1), (2, 8), (4, 8), (16, 8), (64, 4), (512, 8)] {
            let on = Communicator { hardware: &hardware, layout: on(domains, ranks), settings: &settings };
            for function in FUNCTIONS {
                let mut before = 0.0;
                // Eight sizes in each octave, from 8 B to 16 GiB.
                for step in 0..=31 * 8 {
                    let bytes = (8u64 << (step / 8)) * (8 + step % 8) / 8;
                    let (choice, time) = on.time(function, bytes, &constants).unwrap();
                    assert!(
                        time >= before * (1.0 - 1e-9),
                        "{function:?} {domains}x{ranks} {bytes}: {time} after {before}, {choice:?}"
                    );
                    before = time;
                }
            }
        }
    }
}

#[test]
fn faster_links_never_take_more_where_nobody_has_measured() {
    let constants = Constants { even: true, ..Constants::default() };
    for (hardware, ll128) in
        [(dgx_h100(), true), (dgx_h100(), false), (dgx_a100(), true), (dgx_a100(), false)]
    {
        let settings = Settings::default();
        for (domains, ranks) in [(1, 2), (1, 4), (1, 8), (2, 1), (2, 8), (16, 8), (64, 4), (512, 8)] {
            for function in FUNCTIONS {
                for step in 0..=31 * 2 {
                    let bytes = (8u64 << (step / 2)) * (2 + step % 2) / 2;
                    let mut before = f64::INFINITY;
                    for share in [0.25, 0.5, 1.0, 2.0, 4.0] {
                        let hardware = Hardware { ll128_between: ll128, ..hardware.slowed(share) };
                        let on = Communicator {
                            hardware: &hardware,
                            layout: on(domains, ranks),
                            settings: &settings,
                        };
                        let (choice, time) = on.time(function, bytes, &constants).unwrap();
                        assert!(
                            time <= before * (1.0 + 1e-9),
                            "{function:?} {domains}x{ranks} {bytes} at {share}: {time} after {before}, {choice:?}"
                        );
                        before = time;
                    }
                }
            }
        }
    }
}

#[test]
fn long_cables_take_no_bytes_off_the_links() {
    for hardware in [dgx_h100(), dgx_a100()] {
        let near = machine(Hardware { wire: 1e-6.into(), ..hardware.clone() }, Constants::default());
        let far = machine(Hardware { wire: 1e-3.into(), ..hardware }, Constants::default());
        for (n, domain) in [(2, 1), (4, 2), (16, 8), (64, 4)] {
            for kind in [CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter]
            {
                for shift in 10..=32 {
                    let bytes = 1u64 << shift;
                    let of = |made: &Machine| made.cost(kind, bytes, n, domain).expect("known");
                    let (close, long) = (of(&near), of(&far));
                    assert_eq!(close.choice, long.choice);
                    let by_ring = matches!(close.choice.algorithm, Algorithm::Ring | Algorithm::Pat);
                    assert!(
                        !by_ring || close.edge == long.edge,
                        "{kind:?} {n} {domain} {shift} {close:?} {long:?}"
                    );
                    // A ring sends (n - 1) / n of the buffer over each edge, twice for an all-reduce; several rings
                    // share that. No link gives all of its rate.
                    let rings =
                        if close.algorithm == crate::collectives::Algorithm::MultiRing { domain } else { 1 };
                    let rounds = if kind == CollectiveKind::AllReduce { 2 } else { 1 };
                    let payload = rounds * bytes * u64::from(n - 1) / u64::from(n) / u64::from(rings);
                    assert!(
                        !by_ring || long.edge >= payload,
                        "{kind:?} {n} {domain} {shift} {long:?} {payload}"
                    );
                    // The last byte arrives a cable's time after it was sent.
                    let sent = far.hardware.nic * f64::from(far.hardware.nics);
                    let least = 1e-3 + (bytes as f64 / f64::from(n)) / sent;
                    assert!(long.seconds >= least, "{kind:?} {n} {domain} {shift} {long:?}");
                }
            }
        }
    }
}
