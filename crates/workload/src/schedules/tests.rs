//! Bubbles, memory and crossings against the literature, by timed execution.

use proptest::prelude::*;
use windtunnel_kernel::Span;

use super::timed::execute;
use super::*;

fn settings(name: ScheduleName) -> ScheduleSettings {
    ScheduleSettings::new(name)
}

fn unit(schedule: &Schedule) -> Timeline {
    execute(schedule, |_| Costs::UNIT, |_, _| Span::ZERO).unwrap()
}

/// P = 4, M = 8, V as the schedule has it.
fn figure(settings: &ScheduleSettings) -> Schedule {
    Schedule::new(settings, 4, 8).unwrap()
}

#[test]
fn one_forward_one_backward_idles_p_minus_1_of_m_plus_p_minus_1() {
    for name in [ScheduleName::OneForwardOneBackward, ScheduleName::Gpipe] {
        for (p, m) in [(4, 8), (8, 32), (1, 3), (6, 6)] {
            let schedule = Schedule::new(&settings(name), p, m).unwrap();
            let timeline = unit(&schedule);
            assert_eq!(timeline.makespan, Span::from_ps(u64::from(3 * (m + p - 1))));
            assert_eq!(timeline.bubble(0), Span::from_ps(u64::from(3 * (p - 1))));
        }
    }
    // 3 of 11 is the 27.27% of the notes.
    assert_eq!(unit(&figure(&settings(ScheduleName::OneForwardOneBackward))).makespan, Span::from_ps(33));
}

#[test]
fn interleaving_divides_the_bubble_by_the_chunks() {
    for (p, v, m) in [(4, 2, 8), (4, 4, 8), (8, 3, 16), (4, 2, 32)] {
        let with = ScheduleSettings { chunks: Some(v), ..settings(ScheduleName::Interleaved) };
        let timeline = unit(&Schedule::new(&with, p, m).unwrap());
        let ideal = u64::from(3 * m * u32::from(v));
        // (P - 1) / (V M) of ideal (Grattafori et al. 2024): 9/48 for P = 4, V = 2, M = 8.
        assert_eq!(timeline.makespan, Span::from_ps(ideal + u64::from(3 * (p - 1))), "{p} {v} {m}");
    }
}

#[test]
fn splitting_the_backward_leaves_a_third_of_the_bubble() {
    for (name, v) in
        [(ScheduleName::ZbH1, 1), (ScheduleName::Zb1p, 1), (ScheduleName::Zb1p, 2), (ScheduleName::DoraPp, 2)]
    {
        let with = ScheduleSettings { chunks: Some(v), ..settings(name) };
        let timeline = unit(&figure(&with));
        assert_eq!(timeline.makespan, Span::from_ps(24 * u64::from(v) + 3), "{name}");
        assert_eq!(timeline.bubble(0), Span::from_ps(3));
    }
}

#[test]
fn zb_h2_fills_both_ends_for_twice_the_memory() {
    // Qi et al. 2024 §2.2: no bubble between a rank's first and last pass, 2P - 1 activations (figure 3), for F = I = W.
    for (p, m) in [(4, 8), (4, 7), (8, 24), (2, 3), (1, 1)] {
        let schedule = Schedule::new(&settings(ScheduleName::ZbH2), p, m).unwrap();
        let timeline = unit(&schedule);
        for rank in 0..p {
            assert_eq!(
                timeline.span(rank),
                Span::from_ps(u64::from(3 * m)),
                "rank {rank} of {p}, {m} micro-batches"
            );
            assert_eq!(schedule.peak_in_flight(rank), 2 * p - 1);
        }
        assert_eq!(timeline.makespan, Span::from_ps(u64::from(3 * m + p - 1)));
    }
}

#[test]
fn zb2p_is_never_worse_than_the_hand_made_orders_it_may_hold() {
    // In a transformer the gradient of the input takes about what a forward takes, that of the weights 50% to 75% of it: attention has no
    // weights. P and M as in Qi et al. 2024, table 4.
    for (f, i, w, p, m) in [
        (1852, 1809, 933, 8, 24),
        (2950, 2904, 1953, 8, 32),
        (1134, 1101, 740, 16, 48),
        (1041, 1013, 754, 32, 96),
    ] {
        let costs = Costs::new(Span::from_ps(f), Span::from_ps(i), Span::from_ps(w));
        let idle = |with: &ScheduleSettings| {
            let schedule = Schedule::new(with, p, m).unwrap();
            let makespan = execute(&schedule, |_| costs, |_, _| Span::ZERO).unwrap().makespan.ps();
            ((makespan - u64::from(m) * (f + i + w)) as f64 / makespan as f64, schedule.peak_in_flight(0))
        };
        let two = idle(&ScheduleSettings { costs: Some(costs), ..settings(ScheduleName::Zb2p) });
        let one = idle(&ScheduleSettings {
            costs: Some(costs),
            memory_cap: Some(p),
            ..settings(ScheduleName::Zb2p)
        });
        let (h1, h2) = (idle(&settings(ScheduleName::ZbH1)), idle(&settings(ScheduleName::ZbH2)));
        assert!(two.0 <= h2.0 && one.0 <= h1.0, "{two:?} {h2:?} {one:?} {h1:?}");
        assert!(two.1 <= 2 * p && one.1 <= p);
        // Beside the filling of the pipeline, (P - 1)F, less than 2% idles (table 5 of the paper: at most 1.1%).
        let filling = u64::from(p - 1) * f;
        let all = u64::from(m) * (f + i + w) + filling;
        assert!(two.0 < filling as f64 / all as f64 + 0.02, "{two:?} {p} {m}");
    }
}

#[test]
fn bubbles_of_zero_bubble_schedules_are_those_of_table_5() {
    // Qi et al. 2024: passes and exchange in microseconds as measured on 8, 8 and 16 GPUs; bubbles of ZB-H1, ZB-H2, ZB-1p, ZB-2p as shares of
    // the longest time from a rank's first to its last pass. An activation after its first gradient: 32 of 34 + 5as/h.
    for (f, i, w, exchange, p, m, kept, expected) in [
        (18_522, 18_086, 9_337, 601, 8, 24, 32.0 / 87.3, [0.1585, 0.1083, 0.1585, 0.0433]),
        (29_718, 29_444, 19_927, 527, 8, 24, 32.0 / 74.0, [0.1323, 0.0698, 0.1323, 0.0029]),
        (11_347, 11_248, 8_132, 377, 16, 48, 32.0 / 74.0, [0.1397, 0.0672, 0.1397, 0.0066]),
    ] {
        let costs = Costs::new(Span::from_ps(f), Span::from_ps(i), Span::from_ps(w));
        let rate = |name, memory_cap| {
            let with = ScheduleSettings {
                costs: Some(costs),
                latency: Span::from_ps(exchange),
                memory_cap,
                kept: Some(kept),
                ..settings(name)
            };
            let schedule = Schedule::new(&with, p, m).unwrap();
            let timeline = execute(&schedule, |_| costs, |_, _| Span::from_ps(exchange)).unwrap();
            let longest = (0..p).map(|rank| timeline.span(rank).ps()).max().unwrap();
            1.0 - (u64::from(m) * (f + i + w)) as f64 / longest as f64
        };
        let found = [
            rate(ScheduleName::ZbH1, None),
            rate(ScheduleName::ZbH2, None),
            rate(ScheduleName::Zb2p, Some(p)),
            rate(ScheduleName::Zb2p, None),
        ];
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-3, "{p} {m}: {found:.4} {expected}");
        }
    }
}

#[test]
fn dualpipev_is_one_half_of_dualpipe() {
    for (p, m) in [(4, 10), (2, 8), (1, 4), (8, 16)] {
        for (w, pair) in [(1, 3), (2, 5), (4, 9)] {
            let costs = Costs {
                pair: Some(Span::from_ps(pair)),
                ..Costs::new(Span::from_ps(w), Span::from_ps(w), Span::from_ps(w))
            };
            let times = |name, p, m| {
                let schedule = Schedule::new(&settings(name), p, m).unwrap();
                let timeline = execute(&schedule, |_| costs, |_, _| Span::ZERO).unwrap();
                (0..p).map(|rank| (timeline.bubble(rank), schedule.peak_in_flight(rank))).collect::<Vec<_>>()
            };
            // Twice the ranks and micro-batches under DualPipe: its first half idles and holds what DualPipeV does.
            let half = times(ScheduleName::DualPipeV, p, m);
            assert_eq!(half, times(ScheduleName::DualPipe, 2 * p, 2 * m)[..p as usize]);
            // (P - 1)(F&B + B - 3W) of a chunk, half a stage of DualPipe's.
            let expected = u64::from(p - 1) * (pair + 2 * w - 3 * w);
            assert_eq!(
                half.iter().map(|(bubble, _)| bubble.ps()).max(),
                Some(expected),
                "P {p} M {m} W {w} F&B {pair}"
            );
        }
    }
}

#[test]
fn afab_is_gpipe() {
    assert_eq!("afab".parse(), Ok(ScheduleName::Gpipe));
}

#[test]
fn zbv_has_no_bubble_between_a_ranks_first_and_last_action() {
    for (p, m) in [(4, 8), (4, 7), (8, 15), (2, 64), (1, 1)] {
        let timeline = unit(&Schedule::new(&settings(ScheduleName::Zbv), p, m).unwrap());
        for rank in 0..p {
            assert_eq!(
                timeline.span(rank),
                Span::from_ps(u64::from(6 * m)),
                "rank {rank} of {p}, {m} micro-batches"
            );
        }
        assert_eq!(timeline.makespan, Span::from_ps(u64::from(6 * m + p - 1)));
    }
}

#[test]
fn the_bubble_of_dualpipe_is_that_of_the_report() {
    // (P/2 - 1)(F&B + B - 3W), with and without gain from the overlap; the formula is exact for F = I = W.
    for (p, m) in [(4, 8), (8, 20), (8, 32), (2, 4), (16, 64)] {
        for (w, pair) in [(1, 3), (2, 5), (4, 9), (10, 25)] {
            let costs = Costs {
                pair: Some(Span::from_ps(pair)),
                ..Costs::new(Span::from_ps(w), Span::from_ps(w), Span::from_ps(w))
            };
            let schedule = Schedule::new(&settings(ScheduleName::DualPipe), p, m).unwrap();
            let timeline = execute(&schedule, |_| costs, |_, _| Span::ZERO).unwrap();
            let expected = u64::from(p / 2 - 1) * (pair + 2 * w - 3 * w);
            let worst = (0..p).map(|rank| timeline.bubble(rank).ps()).max().unwrap();
            assert_eq!(worst, expected, "P {p} M {m} W {w} F&B {pair}");
        }
    }
}

/// Makespan in hundredths of a chunk: neighbours in a building are 0.05 apart, buildings (half of the ranks each) x.
fn across(schedule: &Schedule, x: u64) -> u64 {
    let hundred = Costs::new(Span::from_ps(100), Span::from_ps(100), Span::from_ps(100));
    let half = schedule.ranks() / 2;
    let latency = |a, b| if (a < half) == (b < half) { Span::from_ps(5) } else { Span::from_ps(100 * x) };
    execute(schedule, |_| hundred, latency).unwrap().makespan.ps()
}

#[test]
fn latency_between_buildings_favours_the_v_and_long_runs() {
    let dorapp = |n| figure(&ScheduleSettings { run_length: Some(n), ..settings(ScheduleName::DoraPp) });
    let zbv = figure(&settings(ScheduleName::Zbv));
    let table = |x| (across(&dorapp(4), x), across(&dorapp(8), x), across(&zbv, x));
    // The notes say 61.4, 57.3, 56.3 and 107.5, 85.4, 82.3: ours of ZBV are 56.40 and 82.35.
    assert_eq!(table(1), (6_140, 5_730, 5_640));
    assert_eq!(table(4), (10_750, 8_540, 8_235));
    // All equal where the buildings touch.
    let none = |schedule: &Schedule| unit(schedule).makespan;
    assert_eq!(
        (none(&dorapp(4)), none(&dorapp(8)), none(&zbv)),
        (Span::from_ps(51), Span::from_ps(51), Span::from_ps(51))
    );
    // The price of the long run is memory: 12 live chunks against 8.
    assert_eq!((dorapp(4).peak_in_flight(0), dorapp(8).peak_in_flight(0), zbv.peak_in_flight(0)), (8, 12, 8));
    // A warm-up of two a rank hides latency better still, for three more live chunks.
    let ahead = ScheduleSettings { run_length: Some(8), warm_up: Some(2), ..settings(ScheduleName::DoraPp) };
    assert_eq!((across(&figure(&ahead), 1), across(&figure(&ahead), 4)), (5_320, 6_730));
    assert_eq!(figure(&ahead).peak_in_flight(0), 15);
}

#[test]
fn peaks_are_those_of_the_literature() {
    let (p, m) = (4, 16);
    let peaks = |with: &ScheduleSettings| {
        let schedule = Schedule::new(with, p, m).unwrap();
        (0..p).map(|rank| schedule.peak_in_flight(rank)).collect::<Vec<_>>()
    };
    assert_eq!(peaks(&settings(ScheduleName::Gpipe)), [16; 4]);
    assert_eq!(peaks(&settings(ScheduleName::OneForwardOneBackward)), [4, 3, 2, 1]);
    // (V - 1)N + 2(P - 1 - r) + 1.
    assert_eq!(peaks(&settings(ScheduleName::Interleaved)), [11, 9, 7, 5]);
    // The delayed weight gradients level the ranks at P chunks, the peak of 1F1B.
    assert_eq!(peaks(&settings(ScheduleName::ZbH1)), [4; 4]);
    assert_eq!(peaks(&settings(ScheduleName::Zbv)), [8; 4]);
    // P + 1 activations (DeepSeek-V3 report, table 2).
    assert_eq!(peaks(&settings(ScheduleName::DualPipe)), [5; 4]);
}

#[test]
fn what_is_kept_for_the_weight_gradient_may_be_less() {
    let schedule = Schedule::new(&settings(ScheduleName::ZbH1), 4, 16).unwrap();
    assert_eq!(schedule.peak_activation(0, &[10], &[6]), 40);
    // Rank 3 runs F, I before anything else is stored: one whole and three kept.
    assert_eq!(schedule.peak_activation(3, &[10], &[6]), 10 + 3 * 6);
}

#[test]
fn a_v_crosses_buildings_less_often_than_a_loop() {
    let half = |a: u32, b: u32| (a < 2) != (b < 2);
    for v in [2u16, 4] {
        let with = |name| ScheduleSettings { chunks: Some(v), ..settings(name) };
        let m = 8;
        let loop_ = figure(&with(ScheduleName::DoraPp)).messages_crossing(half);
        let zbv = figure(&with(ScheduleName::Zbv)).messages_crossing(half);
        assert_eq!((loop_, zbv), (m * 2 * (2 * u64::from(v) - 1), m * 2 * u64::from(v)));
    }
}

#[test]
fn the_search_uses_costs_and_keeps_the_cap() {
    let closed = Schedule::new(&settings(ScheduleName::Zbv), 4, 16).unwrap();
    // Idle time by cost and latency: of the closed form, and of what the search finds. Rank 3 cannot start before 3F.
    for ((f, i, w), latency, idle) in [
        ((100, 100, 100), 0, (300, 300)),
        ((100, 100, 100), 20, (560, 480)),
        ((100, 180, 60), 0, (720, 660)),
        ((100, 80, 120), 0, (340, 300)),
        ((100, 80, 120), 20, (540, 420)),
        ((100, 200, 150), 100, (1950, 1800)),
    ] {
        let costs = Costs::new(Span::from_ps(f), Span::from_ps(i), Span::from_ps(w));
        let with = ScheduleSettings {
            costs: Some(costs),
            latency: Span::from_ps(latency),
            ..settings(ScheduleName::Zbv)
        };
        let found = Schedule::new(&with, 4, 16).unwrap();
        let idle_of = |schedule: &Schedule| {
            let timeline = execute(schedule, |_| costs, |_, _| Span::from_ps(latency)).unwrap();
            timeline.makespan.ps() - 2 * 16 * (f + i + w)
        };
        assert_eq!((idle_of(&closed), idle_of(&found)), idle, "{f} {i} {w} {latency}");
        assert!((0..4).all(|rank| found.peak_in_flight(rank) <= 8));
    }
    for cap in [2, 4, 6, 8] {
        let with = ScheduleSettings { memory_cap: Some(cap), ..settings(ScheduleName::Zbv) };
        let schedule = Schedule::new(&with, 4, 16).unwrap();
        assert!((0..4).all(|rank| schedule.peak_in_flight(rank) <= cap), "{cap}");
    }
}

#[test]
fn a_zig_zag_of_four_chunks_is_better_than_one_of_two_stages_deep() {
    // The same model in 8 and in 16 stages: fill and drain halve with the stages.
    let two = ScheduleSettings { costs: Some(Costs::UNIT), ..settings(ScheduleName::Zbv) };
    let four = ScheduleSettings { chunks: Some(4), ..two.clone() };
    let coarse = Costs::new(Span::from_ps(2), Span::from_ps(2), Span::from_ps(2));
    let two = Schedule::new(&two, 4, 16).unwrap();
    let four = Schedule::new(&four, 4, 16).unwrap();
    let coarse = execute(&two, |_| coarse, |_, _| Span::ZERO).unwrap().makespan;
    let fine = unit(&four).makespan;
    assert!(fine <= coarse, "{fine} {coarse}");
}

#[test]
fn illegal_combinations_name_the_value_and_what_would_fit() {
    let refuse = |with: ScheduleSettings, p, m| Schedule::new(&with, p, m).unwrap_err().to_string();
    let run = |n| ScheduleSettings { run_length: Some(n), ..settings(ScheduleName::Interleaved) };
    assert_eq!(
        refuse(run(3), 4, 8),
        "run length 3 does not fit 4 pipeline ranks and 8 micro-batches: a run shorter than the pipeline stalls at every \
         wrap\n\nhint: use at least 4, or all 8 micro-batches"
    );
    assert_eq!(
        refuse(run(5), 4, 8),
        "run length 5 does not fit 4 pipeline ranks and 8 micro-batches: the last group is shorter than the pipeline\n\n\
         hint: the remainder of 8 by the run length must be 0 or at least 4, as with 4"
    );
    assert!(refuse(run(9), 4, 8).contains("not between 1 and the number of micro-batches"));
    assert_eq!(
        refuse(settings(ScheduleName::DualPipe), 5, 16),
        "schedule `dualpipe` takes an even number of pipeline ranks, found 5\n\nhint: use 4 or 6"
    );
    assert_eq!(
        refuse(settings(ScheduleName::DualPipe), 8, 12),
        "schedule `dualpipe` on 8 ranks takes an even number of at least 16 micro-batches, found 12\n\nhint: use 6 or \
         fewer pipeline ranks, or at least 16 micro-batches"
    );
    let chunks = |name, v| ScheduleSettings { chunks: Some(v), ..settings(name) };
    assert_eq!(
        refuse(chunks(ScheduleName::OneForwardOneBackward, 2), 4, 8),
        "schedule `1f1b` takes 1 chunks a rank, found 2\n\nhint: `interleaved` takes several chunks"
    );
    assert!(refuse(chunks(ScheduleName::Zbv, 3), 4, 8).contains("an even number of chunks a rank, found 3"));
    assert!(
        refuse(ScheduleSettings { memory_cap: Some(1), ..settings(ScheduleName::Zbv) }, 4, 8)
            .contains("cap of 1")
    );
    assert!(refuse(settings(ScheduleName::Gpipe), 0, 8).contains("found 0 ranks"));
    assert_eq!(
        "zbh2".parse::<ScheduleName>().unwrap_err().to_string(),
        "unknown schedule: `zbh2`\n\nhint: one of `gpipe`, `1f1b`, `interleaved`, `zb-h1`, `zb1p`, `zb-h2`, `zb-2p`, \
         `zbv`, `dorapp`, `dualpipe`, `dualpipev`"
    );
}

#[test]
fn broken_lists_are_refused() {
    use ActionKind::{Backward, Forward};
    let placement = Placement { shape: Shape::Loop, ranks: 2, chunks: 1 };
    let list = |kinds: &[(ActionKind, u32)]| {
        kinds.iter().map(|&(kind, microbatch)| Action::new(kind, 0, microbatch)).collect::<Vec<_>>()
    };
    let good = list(&[(Forward, 0), (Backward, 0)]);
    let build = |lists| Schedule::from_actions(ScheduleName::Gpipe, placement, 1, lists);
    assert!(build(vec![good.clone(), good.clone()]).is_ok());
    let error = build(vec![good.clone(), list(&[(Backward, 0), (Forward, 0)])]).unwrap_err();
    assert!(
        error.to_string().starts_with("the schedule deadlocks: pipeline rank 0 waits at B0.0 (action 1)"),
        "{error}"
    );
    let error = build(vec![list(&[(Forward, 0)]), good]).unwrap_err();
    assert_eq!(error.to_string(), "pipeline rank 0 runs B0.0 0 times, expected 1");
}

proptest! {
    /// Whatever is accepted is complete and runs (checked when it is built); what is refused is refused for its settings.
    #[test]
    fn legal_settings_never_deadlock(
        name in 0..ScheduleName::ALL.len(), p in 1..9u32, m in 1..40u32, v in 1..5u16, n in proptest::option::of(1..40u32),
        warm_up in proptest::option::of(1..3u32), w_delay in proptest::option::of(0..9u32),
        cap in proptest::option::of(2..20u32), costed in any::<bool>(),
    ) {
        let name = ScheduleName::ALL[name];
        let fixed = matches!(name, ScheduleName::DualPipe | ScheduleName::DualPipeV | ScheduleName::Zb2p);
        let chunks = (!fixed).then_some(v);
        let with = ScheduleSettings {
            chunks, run_length: n, warm_up, w_delay, memory_cap: cap,
            costs: costed.then_some(Costs::new(Span::from_ps(3), Span::from_ps(4), Span::from_ps(2))),
            ..settings(name)
        };
        match Schedule::new(&with, p, m) {
            Ok(schedule) => {
                let makespan = unit(&schedule).makespan;
                let work = u64::from(m) * 3 * match name {
                    ScheduleName::DualPipe => 1,
                    _ => u64::from(with.chunks()),
                };
                prop_assert!(makespan >= Span::from_ps(work));
            }
            Err(ScheduleError::Deadlock { rank, action, .. }) => {
                prop_assert!(false, "{with:?} P {p} M {m} deadlocks at rank {rank} {action}");
            }
            Err(ScheduleError::Incomplete { .. }) => prop_assert!(false, "{with:?} P {p} M {m} is incomplete"),
            Err(ScheduleError::MemoryCap { cap, chunks }) => prop_assert!(cap < u32::from(chunks)),
            Err(_) => {}
        }
    }

    /// The default run length is always legal.
    #[test]
    fn the_default_run_length_fits(p in 1..20u32, m in 1..200u32, v in 2..5u16) {
        let with = ScheduleSettings { chunks: Some(v), ..settings(ScheduleName::Interleaved) };
        prop_assert!(Schedule::new(&with, p, m).is_ok());
    }
}
