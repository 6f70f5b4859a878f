"""The Perfetto trace, decoded again."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

import windtunnel
from perfetto_reader import Track, read
from windtunnel.engine import TableWriter
from windtunnel.results.rows import Rows
from windtunnel.trace import write_trace
from windtunnel.trace.perfetto import varint
from windtunnel.trace.timeline import arrows, lanes

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel import Result


@pytest.fixture(scope="module")
def tracks(finished_run: Result, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Track]:
    path = write_trace(finished_run, tmp_path_factory.mktemp("trace") / "t.pftrace")
    return read(path.read_bytes())


def test_every_operation_is_a_slice_in_its_place(finished_run: Result, tracks: dict[int, Track]) -> None:
    found = set()
    for track in tracks.values():
        if track.tid is None or track.name == "critical path":
            continue
        process = tracks[track.parent or 0]
        found |= {
            (process.name, track.name, s.arguments["operation"], s.name, s.begin_ns, s.end_ns) for s in track.slices
        }
    expected = set()
    for row in finished_run.operations.iter_rows(named=True):
        process_name = f"pretrain: rank {row['rank']} (stage {row['stage']})"
        stream = "compute" if row["kind"] == "calc" else row["dimension"].upper()
        begin, end = row["start_ps"] // 1000, row["finish_ps"] // 1000
        expected.add((process_name, stream, row["operation"], row["label"], begin, end))
    assert found == expected


def test_categories_say_what_it_is_for(tracks: dict[int, Track]) -> None:
    slices = [s for track in tracks.values() for s in track.slices]
    by_name = {s.name: s.category for s in slices}
    assert by_name["F0.0 layer0"] == "calc"
    assert by_name["all_reduce"] == "tp"
    assert by_name["send to stage 1"] == "pp"


def test_process_and_thread_numbers_are_unique_and_fit(tracks: dict[int, Track]) -> None:
    processes = [t.pid for t in tracks.values() if t.tid is None and t.pid is not None]
    threads = [t.tid for t in tracks.values() if t.tid is not None]
    assert len(set(processes)) == len(processes)
    assert len(set(threads)) == len(threads)
    assert all(0 < number < 2**31 for number in [*processes, *threads])
    assert all(t.pid == tracks[t.parent or 0].pid for t in tracks.values() if t.tid is not None)


def test_the_critical_path_joins_without_a_gap(finished_run: Result, tracks: dict[int, Track]) -> None:
    (path,) = [t for t in tracks.values() if t.name == "critical path"]
    ends = [s.end_ns for s in path.slices]
    assert [s.begin_ns for s in path.slices] == [0, *ends[:-1]]
    assert ends[-1] == finished_run.iterations["finish_ps"].max() // 1000  # type: ignore[operator]
    assert {s.arguments["links"] for s in path.slices if s.category == "dp"} == {"leaf0 -> spine3; spine3 -> leaf1"}


def test_counters_are_percentages_of_the_busiest_links(finished_run: Result, tracks: dict[int, Track]) -> None:
    counters = [t for t in tracks.values() if t.is_counter]
    assert len(counters) == 16
    busiest = finished_run.links.sort("utilisation", descending=True).row(0, named=True)
    (counter,) = [t for t in counters if t.name == f"{busiest['name']} ({busiest['tier']})"]
    assert [value for _, value in counter.counts[:-1]] == pytest.approx([100 * u for u in busiest["utilisation_bins"]])
    assert counter.counts[1][0] == busiest["bin_span_ps"] // 1000


def test_messages_in_flight_together_take_threads_of_their_own(tmp_path: Path) -> None:
    write_operations(tmp_path, start=[0, 1000, 5000, 7000], finish=[5000, 9000, 6000, 7000])
    tracks = read(write_trace(windtunnel.load(tmp_path), tmp_path / "t.pftrace").read_bytes())
    threads = {t.name: [(s.begin_ns, s.end_ns) for s in t.slices] for t in tracks.values() if t.tid is not None}
    assert threads == {"DP": [(0, 5), (5, 6), (7, 7)], "DP (2)": [(1, 9)]}


def test_lanes_are_taken_again_when_they_are_free() -> None:
    assert lanes([0, 1, 2, 5, 6], [5, 2, 8, 6, 7]) == [0, 1, 1, 0, 0]


def test_a_gzipped_trace_is_the_same_bytes_each_time(finished_run: Result, tmp_path: Path) -> None:
    plain = write_trace(finished_run, tmp_path / "t.pftrace").read_bytes()
    first = write_trace(finished_run, tmp_path / "a.gz").read_bytes()
    assert gzip.decompress(first) == plain
    assert write_trace(finished_run, tmp_path / "b.gz").read_bytes() == first


def test_a_run_without_operations_has_no_timeline(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(windtunnel.InputError, match="the run recorded no operations"):
        write_trace(windtunnel.load(tmp_path), tmp_path / "t.gz")


def test_varint() -> None:
    assert [varint(v) for v in (0, 127, 128, 300)] == [b"\x00", b"\x7f", b"\x80\x01", b"\xac\x02"]


def write_operations(folder: Path, start: list[int], finish: list[int]) -> None:
    n = len(start)
    (folder / "summary.json").write_text("{}")
    with TableWriter(folder) as writer:
        writer.sink("operations", {
            "job": ["j"] * n, "label": [""] * n, "kind": ["receive"] * n, "dimension": ["dp"] * n,
            **{name: np.zeros(n, dtype=np.uint32) for name in ("rank", "stage", "iteration", "stream")},
            "operation": np.arange(n, dtype=np.uint32),
            "ready_ps": np.array(start, dtype=np.uint64), "start_ps": np.array(start, dtype=np.uint64),
            "finish_ps": np.array(finish, dtype=np.uint64), "bytes": np.zeros(n, dtype=np.uint64),
        })  # fmt: skip
    assert pl.scan_parquet(folder / "operations" / "*.parquet").select(pl.len()).collect().item() == n


def posted(*rows: tuple[int, int, str, int, int | None, int | None]) -> pl.DataFrame:
    """Rows of rank, operation, kind, ready, peer and tag."""
    columns = ("rank", "operation", "kind", "ready_ps", "peer", "tag")
    types = {"rank": pl.UInt32, "operation": pl.UInt32, "ready_ps": pl.UInt64, "peer": pl.UInt64, "tag": pl.UInt64}
    frame = pl.DataFrame(rows, schema=columns, orient="row", schema_overrides=types)
    return frame.with_columns(job=pl.lit("a"), iteration=pl.lit(0, pl.UInt64))


def joined(rows: pl.DataFrame) -> set[tuple[int, int, int, int]]:
    """Arrows as sender, its operation, receiver, its operation."""
    ends: dict[int, dict[bool, tuple[int, int]]] = {}
    for (_, rank), mine in arrows(Rows.of(rows)).items():
        for (_, operation), flow in mine.items():
            ends.setdefault(flow.number, {})[flow.leaves] = (rank, operation)
    return {(*both[True], *both[False]) for both in ends.values()}


def test_arrows_follow_the_order_of_posting() -> None:
    # Rank 0 posts its second operation first; the receives are posted in the order of their numbers.
    rows = posted(
        (0, 1, "send", 50, 1, 7), (0, 2, "send", 20, 1, 7), (0, 3, "send", 10, 1, 8), (0, 4, "send", 10, 2, 7),
        (1, 1, "receive", 0, 0, 7), (1, 2, "receive", 5, 0, 7), (1, 3, "receive", 0, 0, 8),
        (1, 4, "calc", 0, None, None),
        (2, 9, "receive", 0, 0, 7), (2, 5, "receive", 0, 1, 7),
    )  # fmt: skip
    assert joined(rows) == {(0, 2, 1, 1), (0, 1, 1, 2), (0, 3, 1, 3), (0, 4, 2, 9)}


def test_no_arrow_is_guessed() -> None:
    rows = posted(
        (0, 1, "send", 0, 1, 7), (1, 1, "receive", 0, 0, None), (1, 2, "send", 0, 0, 3), (0, 2, "receive", 0, 1, 3)
    )
    assert joined(rows) == {(1, 2, 0, 2)}
    assert arrows(Rows.of(rows.drop("tag"))) == {}


@pytest.mark.engine
def test_every_receive_of_a_run_has_the_arrow_of_its_send(tmp_path: Path) -> None:
    """Ranks that send two messages of one tag each way: the sizes say which receive took which."""
    ops = "".join(
        f"rank {me} {{\nl1: send {1000 + me}b to {1 - me} tag 1\nl2: send {2000 + me}b to {1 - me} tag 1\n"
        f"l2 requires l1\nl3: recv {1001 - me}b from {1 - me} tag 1\nl4: recv {2001 - me}b from {1 - me} tag 1\n"
        f"l4 requires l3\n}}\n"
        for me in (0, 1)
    )
    (tmp_path / "pair.goal").write_text(f"num_ranks 2\n{ops}")
    scenario = {
        "windtunnel": 1, "name": "pair", "fidelity": "message",
        "topology": {"shape": "clos", "hosts": 2, "host": {"gpus": 1, "nics": 1},
                     "tiers": [{"ports_down": 2, "rate": "100 Gbps", "length": "5 m"}]},
        "jobs": [{"name": "a", "workload": {"goal": str(tmp_path / "pair.goal")}, "iterations": 3}],
    }  # fmt: skip
    result = windtunnel.run(scenario, full=True)
    ends = result.operations.filter(pl.col("kind") != "calc")
    assert ends["peer"].null_count() == 0 == ends["tag"].null_count()
    tracks = read(write_trace(result, tmp_path / "t.pftrace").read_bytes())
    slices = [s for track in tracks.values() for s in track.slices]
    begun = {number: s for s in slices for number in s.leaves}
    ended = {number: s for s in slices for number in s.arrives}
    receives = ends.filter(pl.col("kind") == "receive").height
    assert len(begun) == len(ended) == receives > 0
    assert begun.keys() == ended.keys()
    for number, sent in begun.items():
        taken = ended[number]
        assert sent.begin_ns <= taken.end_ns
        assert sent.arguments["iteration"] == taken.arguments["iteration"]
        # l1 meets l3 and l2 meets l4.
        assert taken.arguments["operation"] == sent.arguments["operation"] + 2
