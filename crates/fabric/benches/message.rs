//! The message model: wall time per event, and peak memory of the process so far.
//!
//! `cargo bench -p windtunnel-fabric --bench message [NAME]…`, NAME a part of a row's name.
#![allow(clippy::disallowed_methods, reason = "a bench reads the wall clock")]

use std::time::Instant;

use windtunnel_fabric::host::{Costs, Host, HostSpec, LogGops};
use windtunnel_fabric::message::Latency;
use windtunnel_fabric::{Fabric, Notice, NoticeKind, SendRequest, Ticket};
use windtunnel_kernel::{Bytes, EndpointId, NicId, Span, StreamId, Tag, Time, mix64};

fn hosts(endpoints: u32) -> Host<Latency> {
    let costs = Costs::uniform(LogGops {
        latency: Span::from_ns(2_500),
        overhead: Span::from_ns(1_500),
        gap: Span::from_ns(1_000),
        gap_per_byte: 20_000,
        overhead_per_byte: 0,
        eager_limit: Bytes::new(65_535),
    });
    Host::new(HostSpec { endpoints, streams: 1, nics: 1 }, costs.clone(), Latency::new(costs))
}

fn message(to: u32, bytes: u64) -> SendRequest {
    let (stream, nic) = (StreamId(0), NicId(0));
    SendRequest {
        stream,
        nic,
        to: EndpointId(to),
        bytes: Bytes::new(bytes),
        tag: Tag(0),
        class: 0,
        entropy: 0,
        line: 0,
        waits: false,
    }
}

/// Steps to the end, handing each step's notices to `follow`.
fn run(host: &mut Host<Latency>, mut follow: impl FnMut(&mut Host<Latency>, Notice)) -> u64 {
    let mut notices = Vec::new();
    let mut ended = 0;
    while host.next_time() != Time::NEVER {
        host.step(&mut notices);
        for notice in notices.drain(..) {
            if notice.kind != NoticeKind::Started {
                ended += 1;
                follow(host, notice);
            }
        }
    }
    ended
}

/// Every rank sends to every other and posts all receives at time zero; `peer` gives the k-th receiver of a rank.
fn all_to_all(ranks: u32, peer: impl Fn(u32, u32) -> u32) -> (u64, Time) {
    let mut host = hosts(ranks);
    for rank in (0..ranks).map(EndpointId) {
        for k in 1..ranks {
            host.send(Time::ZERO, rank, Ticket(u64::from(k)), message(peer(rank.0, k), 1 << 10));
        }
        for k in 1..ranks {
            let source = Some(EndpointId((rank.0 + ranks - k) % ranks));
            host.post_receive(Time::ZERO, rank, Ticket(u64::from(k)), StreamId(0), source, Some(Tag(0)));
        }
    }
    let ended = run(&mut host, |_, _| {});
    assert_eq!(ended, 2 * u64::from(ranks) * u64::from(ranks - 1));
    (host.events(), host.finish_times().into_iter().max().unwrap_or_default())
}

fn binomial_broadcast(ranks: u32) -> (u64, Time) {
    let mut host = hosts(ranks);
    // Rank r got the message from r without its highest bit, and sends to r + 2^k for every 2^k above r.
    let children = |host: &mut Host<Latency>, rank: u32, at: Time| {
        let first = rank.checked_ilog2().map_or(0, |bit| bit + 1);
        for child in
            (first..32).map(|bit| u64::from(rank) + (1 << bit)).take_while(|&child| child < u64::from(ranks))
        {
            host.send(at, EndpointId(rank), Ticket(0), message(child as u32, 1 << 10));
        }
    };
    children(&mut host, 0, Time::ZERO);
    for rank in 1..ranks {
        let source = Some(EndpointId(rank ^ (1 << rank.ilog2())));
        host.post_receive(Time::ZERO, EndpointId(rank), Ticket(1), StreamId(0), source, Some(Tag(0)));
    }
    run(&mut host, |host, notice| {
        if notice.ticket == Ticket(1) {
            children(host, notice.endpoint.0, notice.at);
        }
    });
    (host.events(), host.finish_times().into_iter().max().unwrap_or_default())
}

/// Each endpoint computes one operation after another, as a training replay without its communication.
fn computations(endpoints: u32, each: u64, duration: impl Fn(u32, u64) -> u64) -> (u64, Time) {
    let mut host = hosts(endpoints);
    let next = |host: &mut Host<Latency>, rank: u32, ready: Time, count: u64| {
        host.calc(ready, EndpointId(rank), Ticket(count), StreamId(0), Span::from_ps(duration(rank, count)));
    };
    (0..endpoints).for_each(|rank| next(&mut host, rank, Time::ZERO, 1));
    run(&mut host, |host, notice| {
        if notice.ticket.0 < each {
            next(host, notice.endpoint.0, notice.at, notice.ticket.0 + 1);
        }
    });
    (host.events(), host.finish_times().into_iter().max().unwrap_or_default())
}

fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: f64 = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(f64::NAN);
    kib / 1024.0
}

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let row = |name: &str, work: &dyn Fn() -> (u64, Time)| {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            return;
        }
        let start = Instant::now();
        let (events, finish) = work();
        let seconds = start.elapsed().as_secs_f64();
        let each = seconds * 1e9 / events as f64;
        println!(
            "{name:<46} {seconds:>7.3} s {events:>9} events {each:>6.0} ns each, peak {:>5.0} MiB, finish {finish}",
            peak_mib()
        );
    };
    row("binomial broadcast, 65,536 ranks", &|| binomial_broadcast(65_536));
    row("computations, 16,384 ranks, equal", &|| computations(16_384, 128, |_, _| 1_000_000));
    row("computations, 16,384 ranks, varied", &|| {
        computations(16_384, 128, |rank, count| 1_000_000 + mix64(u64::from(rank) << 32 | count) % 200_000)
    });
    row("all-to-all 1 KiB, 1,024 ranks, shifted", &|| all_to_all(1_024, |rank, k| (rank + k) % 1_024));
    row("all-to-all 1 KiB, 1,024 ranks, by rank", &|| {
        all_to_all(1_024, |rank, k| if k > rank { k } else { k - 1 })
    });
}
