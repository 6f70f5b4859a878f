"""From result tables to a timeline: the critical path, a process per rank with a thread per stream, busy links.

Picoseconds become nanoseconds by rounding down, begin and end alike, so that slices that follow each other still do.
Operations of one stream that overlap (messages in flight together) are laid on as many threads as they need. An arrow
leads from each send to the receive that it meets: the k-th send of a rank to another with a tag meets the k-th receive.
"""

from __future__ import annotations

import gzip
from itertools import groupby
from typing import TYPE_CHECKING

from windtunnel.breakdown import PART
from windtunnel.engine import InputError
from windtunnel.results.folder import write_beside
from windtunnel.results.rows import Rows, few_rows, rows_of
from windtunnel.results.streams import stream_name
from windtunnel.trace.perfetto import Flow, TraceWriter

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel.results import Result

BUSY_LINKS = 16
"""Links whose utilisation is shown as counters: those that are busiest."""

FIRST_RANK = 10_000
"""Process numbers of ranks start here, those of the jobs' critical paths at 1."""

FIRST_THREAD = 1_000_000
"""Thread numbers start here, apart from the process numbers: a thread numbered as its process is its main thread."""


Pair = tuple[str, int, int, int, int]
"""A job, an iteration, who sends, who receives, and the tag."""


def write_trace(result: Result, path: Path) -> Path:
    """Writes the timeline of `result` to `path`, gzipped if it ends in `.gz`, and returns it.

    Raises `InputError` if the run recorded no operations.
    """
    if "operations" not in result.tables:
        raise InputError(f"the run recorded no operations, so there is no timeline: `{result.path}`")
    writer = TraceWriter()
    _critical_path(writer, result)
    _operations(writer, rows_of(result, "operations"))
    _links(writer, result)
    data = writer.data
    write_beside(path, gzip.compress(data, compresslevel=5, mtime=0) if path.suffix == ".gz" else data)
    return path


def since_the_start(rows: Rows) -> Rows:
    """`rows` with each instant in picoseconds (`start_ps`) also in nanoseconds since the run's start (`start_ns`).

    Picoseconds count from `origin_s`; from the run's start where a run of an earlier version has no such column.
    """
    origins = rows["origin_s"] if "origin_s" in rows else [0] * rows.height
    columns = dict(rows.columns)
    for name in ("ready", "start", "finish"):
        if f"{name}_ps" in rows:
            instants = zip(rows[f"{name}_ps"], origins, strict=True)
            columns[f"{name}_ns"] = [ps // 1000 + int(origin) * 10**9 for ps, origin in instants]
    return Rows(columns)


def lanes(begin: list[int], end: list[int]) -> list[int]:
    """For intervals in order of begin: the first lane of each that is free by then."""
    free: list[int] = []
    chosen = []
    for b, e in zip(begin, end, strict=True):
        lane = next((i for i, until in enumerate(free) if until <= b), len(free))
        if lane == len(free):
            free.append(e)
        else:
            free[lane] = e
        chosen.append(lane)
    return chosen


def arrows(operations: Rows) -> dict[tuple[str, int], dict[tuple[int, int], Flow]]:
    """Ends of arrows by job and rank, then iteration and operation, of messages both of whose ends are among the rows.

    A matcher takes sends and receives of one pair and tag in the order in which they were posted (`ready_ps`). Where a
    rank receives from anybody or with any tag, which one it took is not known, and no arrow leads to the rank.
    """
    if "peer" not in operations or "tag" not in operations:
        return {}
    columns = ("job", "iteration", "rank", "peer", "tag", "operation")
    order = (["origin_s"] if "origin_s" in operations else []) + ["ready_ps", "operation"]
    posted = operations.take([i for i, kind in enumerate(operations["kind"]) if kind in ("send", "receive")])
    free = {(job, rank) for job, rank, peer, tag in posted.each("job", "rank", "peer", "tag") if None in (peer, tag)}
    sends: dict[tuple[Pair, int], int] = {}
    receives: dict[tuple[Pair, int], int] = {}
    turns: dict[tuple[object, ...], int] = {}
    for row in posted.take(posted.order(order)).each("kind", *columns):
        kind, job, iteration, rank, peer, tag, operation = row
        source, target = (rank, peer) if kind == "send" else (peer, rank)
        if (job, target) in free:
            continue
        pair = (job, iteration, source, target, tag)
        turn = turns[kind, pair] = turns.get((kind, pair), -1) + 1
        (sends if kind == "send" else receives)[pair, turn] = operation
    found: dict[tuple[str, int], dict[tuple[int, int], Flow]] = {}
    number = 0
    for key, sent in sends.items():
        received = receives.get(key)
        if received is None:
            continue
        number += 1
        job, iteration, source, target, _ = key[0]
        found.setdefault((job, source), {})[iteration, sent] = Flow(number, leaves=True)
        found.setdefault((job, target), {})[iteration, received] = Flow(number, leaves=False)
    return found


def _critical_path(writer: TraceWriter, result: Result) -> None:
    if "critical_path" not in result.tables:
        return
    rows = since_the_start(rows_of(result, "critical_path"))
    rows = rows.take(rows.order(["job", "episode", "iteration", "step"]))
    for i, (name, job) in enumerate(groupby(rows.records(), key=lambda row: row["job"])):
        process = writer.process(1 + i, f"{name}: critical path", 0)
        track = writer.thread(1 + i, 1 + i, "critical path", process)
        for row in job:
            part = PART.get(row["category"])
            arguments: dict[str, int | str] = {
                "iteration": row["iteration"],
                "rank": row["rank"],
                "what": row["label"],
            }
            if row["links"]:
                arguments["links"] = row["links"]
            writer.slice(
                track, row["start_ns"], row["finish_ns"], part.name if part else row["category"],
                row["category"], arguments,
            )  # fmt: skip


def _operations(writer: TraceWriter, operations: Rows) -> None:
    origin = ["origin_s"] if "origin_s" in operations else []
    order = ["job", "stage", "rank", "stream", *origin, "start_ps", "finish_ps", "operation"]
    rows = since_the_start(operations)
    ordered = rows.order(order)
    tid = FIRST_THREAD
    ends = arrows(operations)
    keys = list(rows.each("job", "stage", "rank", "stream"))
    groups = groupby(ordered, key=lambda i: keys[i][:3])
    for place, ((job, stage, rank), mine) in enumerate(groups, start=1):
        pid = FIRST_RANK + place
        process = writer.process(pid, f"{job}: rank {rank} (stage {stage})", place)
        for stream, numbers in groupby(mine, key=lambda i: keys[i][3]):
            some = rows.take(list(numbers))
            name = stream_name(stream, some.each("kind", "label", "dimension"))
            tid = _stream(writer, (process, pid, tid), name, some, ends.get((job, rank), {}))


def _stream(
    writer: TraceWriter,
    place: tuple[int, int, int],
    name: str,
    rows: Rows,
    ends: dict[tuple[int, int], Flow],
) -> int:
    """Writes a stream as threads; `place` is the process's track and number, and the first thread's number."""
    process, pid, tid = place
    begin, end = rows["start_ns"], rows["finish_ns"]
    chosen = lanes(begin, end)
    tracks = []
    for lane in range(max(chosen) + 1):
        tracks.append(writer.thread(pid, tid, name if lane == 0 else f"{name} ({lane + 1})", process))
        tid += 1
    columns = ("label", "kind", "dimension", "iteration", "operation", "ready_ns", "bytes")
    for b, e, lane, row in zip(begin, end, chosen, rows.each(*columns), strict=True):
        label, kind, dimension, iteration, operation, ready_ns, size = row
        arguments: dict[str, int | str] = {"iteration": iteration, "operation": operation}
        if (waited := b - ready_ns) > 0:
            arguments["waited_ns"] = waited
        if size:
            arguments["bytes"] = size
        writer.slice(
            tracks[lane],
            b,
            e,
            label or kind,
            kind if dimension == "other" else dimension,
            arguments,
            ends.get((iteration, operation)),
        )
    return tid


def _busiest(result: Result) -> Rows:
    """The rows of the links that are busiest."""
    links = few_rows(result, "links")
    if links is None:
        import polars as pl  # noqa: PLC0415

        order = result.scan("links").select("utilisation", "link").collect().with_row_index()
        order = order.sort(-pl.col("utilisation").fill_null(0.0), "link").head(BUSY_LINKS)
        chosen = (
            result.scan("links").with_row_index().filter(pl.col("index").is_in(order["index"].to_list())).drop("index")
        )
        links = Rows.of(chosen.collect())
    use, names = links["utilisation"], links["link"]
    return links.take(sorted(range(links.height), key=lambda i: (-(use[i] or 0.0), names[i]))[:BUSY_LINKS])


def _links(writer: TraceWriter, result: Result) -> None:
    if "links" not in result.tables:
        return
    busiest = _busiest(result)
    if "utilisation_bins" not in busiest or not busiest.height:
        return
    process = writer.process(2**31 - 1, "busiest links", 2**20)
    for row in busiest.records():
        track = writer.counter(f"{row['name']} ({row['tier']})", "%", process)
        bins = row["utilisation_bins"]
        for i, value in enumerate(bins):
            writer.count(track, i * row["bin_span_ps"] // 1000, 100 * value)
        writer.count(track, len(bins) * row["bin_span_ps"] // 1000, 0.0)
