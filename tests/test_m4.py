"""Reads of a closed loop on a server's link: the table `m4`, and the constants that it is predicted by."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest

from windtunnel.calibrate import hosts
from windtunnel.engine import InputError
from windtunnel.validate import validate
from windtunnel.validate.systems import read_systems
from windtunnel.validate.tables import m4
from windtunnel.validate.tables.closed_loop import Event, Host, Loop, durations, loop_of, unloaded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HOST = Host(latency=12e-6, prepare=0.1e-9, depth=100e3)
SIZE = 409_608


def recording(folder: Path, loop: Loop, host: Host) -> Path:
    """A run as the simulator gives it, written as a recording: events in order of starts."""
    system = read_systems(None)["m4-testbed"].record
    (spans,) = durations([(loop, SIZE, host, system, "packet")], draws=1)
    # Starts follow from the chain of each client.
    starts = []
    for client in loop.begins:
        now = 0.0
        for index in range(loop.reads[client]):
            for read in (False, True):
                starts.append((now, client, read, spans[client, read, index]))
                now += spans[client, read, index] + (3e-6 if read else 0.0)
    place = folder / "flows"
    place.mkdir(parents=True)
    with (place / "m4_testbed_synthetic.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(m4.COLUMNS)
        for order, (_, client, read, span) in enumerate(sorted(starts)):
            writer.writerow(["400_1", SIZE, 1, order, "rdma" if read else "ud", client, round(span * 1e9)])
    return folder


def test_a_read_that_is_alone_takes_its_bytes_and_the_latency() -> None:
    system = read_systems(None)["m4-testbed"].record
    (spans,) = durations([(hosts.ALONE, SIZE, HOST, system, "packet")], draws=1)
    packets = -(-SIZE // 1024)
    wire = (SIZE + 82 * packets) * 0.8e-9
    # The request and the adapter's fetch of a packet come on top.
    assert wire + HOST.latency < spans[0, True, 1] < wire + HOST.latency + 2e-6
    assert spans[0, False, 1] == pytest.approx(HOST.prepare * SIZE + HOST.latency, abs=1e-6)


def test_readers_share_the_link_and_answers_wait_in_front_of_it() -> None:
    system = read_systems(None)["m4-testbed"].record
    clients = dict.fromkeys(range(4), 6)
    loop = Loop(clients, dict.fromkeys(clients, 1), dict.fromkeys(clients, "asks"))
    (spans,) = durations([(loop, SIZE, HOST, system, "packet")], draws=1)
    whole = max(sum(spans[client, read, i] for read in (False, True) for i in range(6)) for client in clients)
    assert whole == pytest.approx(24 * SIZE * 1106 / 1024 * 0.8e-9, rel=0.03)
    waits = [spans[c, False, 4] - HOST.prepare * SIZE for c in clients]
    assert 0 < max(waits) < 1.5 * HOST.depth * 0.8e-9


def test_what_recordings_show_of_their_clients() -> None:
    events = [
        Event(1, "rdma", 1.0),
        Event(2, "ud", 1.0),
        Event(2, "rdma", 1.0),
        Event(2, "ud", 1.0),
        Event(3, "ud", 1.0),
    ]
    loop = loop_of([*events, Event(3, "rdma", 1.0), Event(2, "rdma", 1.0)])
    assert loop == Loop({1: 1, 2: 2, 3: 1}, {1: 1, 2: 1, 3: 1}, {1: "reads", 2: "asks", 3: "late"})
    two = loop_of([Event(1, "ud", 1.0), Event(1, "ud", 1.0), Event(1, "rdma", 1.0), Event(1, "rdma", 1.0)])
    assert two.slots == {1: 2}
    last = [Event(2, "rdma", 1.0), *[Event(1, ("ud", "rdma")[i % 2], 1.0) for i in range(6)]]
    assert unloaded(last) == [4, 5, 6]


def test_injected_constants_are_found_again(tmp_path: Path) -> None:
    reads = {1: 8, 2: 5, 3: 5}
    loop = Loop(reads, dict.fromkeys(reads, 1), dict.fromkeys(reads, "asks"))
    found = hosts.fit(read_systems(None)["m4-testbed"], m4.runs(recording(tmp_path, loop, HOST)))
    assert found.latency == pytest.approx(HOST.latency, rel=0.02)
    assert found.prepare == pytest.approx(HOST.prepare, rel=0.02)
    assert found.depth == pytest.approx(HOST.depth, rel=0.15)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,1000,1,0,rdma,0,x", "m4_testbed_a.csv:2: `dur_ns`: expected a positive number"),
        ("a,1000,1,0,tcp,0,5", "m4_testbed_a.csv:2: `kind`: expected `ud` or `rdma`"),
        ("a,1000,1,x,rdma,0,5", "m4_testbed_a.csv:2: `client` and `order`"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, row: str, message: str) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "m4_testbed_a.csv").write_text(",".join(m4.COLUMNS) + "\n" + row + "\n")
    with pytest.raises(InputError) as caught:
        m4.runs(tmp_path)
    assert message in str(caught.value)


def _holds(events: Sequence[Event], *, starts: bool) -> bool:
    """Whether there are times at which each client's events follow one another within 50 us and are in this order."""
    ways: list[tuple[int, int, float]] = []
    last: dict[int, int] = {}
    for i, event in enumerate(events):
        if event.client in last:
            before = last[event.client]
            ways.append((before, i, events[before].seconds))
            ways.append((i, before, -events[before].seconds - 50e-6))
        last[event.client] = i
        if i:
            ways.append((i - 1, i, 0.0 if starts else events[i - 1].seconds - event.seconds))
    times = [0.0] * len(events)
    for _ in range(len(events) + 1):
        moved = False
        for a, b, least in ways:
            if times[b] < times[a] + least - 1e-12:
                times[b], moved = times[a] + least, True
        if not moved:
            return True
    return False


def test_recordings_are_in_order_of_starts(measured: Path) -> None:
    for run in m4.runs(measured):
        assert _holds(run.events, starts=True), run.name
        assert not _holds(run.events, starts=False), run.name


def test_reads_within_their_targets(measured: Path) -> None:
    (score,) = validate(["m4"], data=measured).scores
    if not score.rows:
        pytest.skip("no recorded reads in the folder")
    assert score.figures.median_abs_error is not None
    assert score.figures.median_abs_error <= 0.15
    (alone,) = [group for group in score.groups() if group["by"] == {"load": "unloaded"}]
    assert alone["median_abs_error"] <= 0.05
