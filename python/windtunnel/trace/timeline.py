"""From result tables to a timeline: the critical path, a process per rank with a thread per stream, busy links.

Picoseconds become nanoseconds by rounding down, begin and end alike, so that slices that follow each other still do.
Operations of one stream that overlap (messages in flight together) are laid on as many threads as they need. An arrow
leads from each send to the receive that it meets: the k-th send of a rank to another with a tag meets the k-th receive.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import polars as pl

from windtunnel.breakdown import PART
from windtunnel.engine import InputError
from windtunnel.results.folder import write_beside
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


def write_trace(result: Result, path: Path) -> Path:
    """Writes the timeline of `result` to `path`, gzipped if it ends in `.gz`, and returns it.

    Raises `InputError` if the run recorded no operations.
    """
    if "operations" not in result.tables:
        raise InputError(f"the run recorded no operations, so there is no timeline: `{result.path}`")
    writer = TraceWriter()
    _critical_path(writer, result)
    _operations(writer, result.operations)
    _links(writer, result)
    data = writer.data
    write_beside(path, gzip.compress(data, compresslevel=5, mtime=0) if path.suffix == ".gz" else data)
    return path


def since_the_start(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` with each instant in picoseconds (`start_ps`) also in nanoseconds since the run's start (`start_ns`).

    Picoseconds count from `origin_s`; from the run's start where a run of an earlier version has no such column.
    """
    origin = pl.col("origin_s").cast(pl.Int64) * 10**9 if "origin_s" in rows.columns else pl.lit(0, pl.Int64)
    instants = [name for name in ("ready_ps", "start_ps", "finish_ps") if name in rows.columns]
    return rows.with_columns(
        ((pl.col(name) // 1000).cast(pl.Int64) + origin).alias(name.removesuffix("_ps") + "_ns") for name in instants
    )


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


def arrows(operations: pl.DataFrame) -> dict[tuple[str, int], dict[tuple[int, int], Flow]]:
    """Ends of arrows by job and rank, then iteration and operation, of messages both of whose ends are among the rows.

    A matcher takes sends and receives of one pair and tag in the order in which they were posted (`ready_ps`). Where a
    rank receives from anybody or with any tag, which one it took is not known, and no arrow leads to the rank.
    """
    if not {"peer", "tag"} <= set(operations.columns):
        return {}
    posted = operations.filter(pl.col("kind").is_in(["send", "receive"]))
    free = posted.filter(pl.col("peer").is_null() | pl.col("tag").is_null())
    origin = ["origin_s"] if "origin_s" in posted.columns else []
    send = pl.col("kind") == "send"
    rank, peer = pl.col("rank").cast(pl.UInt64), pl.col("peer").cast(pl.UInt64)
    ends = (
        posted.with_columns(
            source=pl.when(send).then(rank).otherwise(peer),
            target=pl.when(send).then(peer).otherwise(rank),
        )
        .join(free.select("job", rank.alias("target")).unique(), on=["job", "target"], how="anti")
        .sort([*origin, "ready_ps", "operation"], maintain_order=True)
        .with_columns(turn=pl.int_range(pl.len()).over("job", "iteration", "source", "target", "tag", "kind"))
    )
    key = ["job", "iteration", "source", "target", "tag", "turn"]
    both = ends.filter(send).join(ends.filter(~send), on=key, suffix="_end", maintain_order="left")
    found: dict[tuple[str, int], dict[tuple[int, int], Flow]] = {}
    columns = ("job", "rank", "rank_end", "iteration", "operation", "operation_end")
    for flow, row in enumerate(both.select(columns).iter_rows(), start=1):
        job, sender, receiver, iteration, sent, received = row
        found.setdefault((job, sender), {})[iteration, sent] = Flow(flow, leaves=True)
        found.setdefault((job, receiver), {})[iteration, received] = Flow(flow, leaves=False)
    return found


def _critical_path(writer: TraceWriter, result: Result) -> None:
    if "critical_path" not in result.tables:
        return
    rows = since_the_start(result.critical_path).sort(["job", "episode", "iteration", "step"], maintain_order=True)
    for i, (name, job) in enumerate(rows.group_by(["job"], maintain_order=True)):
        process = writer.process(1 + i, f"{name[0]}: critical path", 0)
        track = writer.thread(1 + i, 1 + i, "critical path", process)
        for row in job.iter_rows(named=True):
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


def _operations(writer: TraceWriter, operations: pl.DataFrame) -> None:
    origin = ["origin_s"] if "origin_s" in operations.columns else []
    order = ["job", "stage", "rank", "stream", *origin, "start_ps", "finish_ps", "operation"]
    ordered = since_the_start(operations).sort(order, maintain_order=True)
    tid = FIRST_THREAD
    ends = arrows(operations)
    groups = ordered.group_by(["job", "stage", "rank"], maintain_order=True)
    for place, ((job, stage, rank), mine) in enumerate(groups, start=1):
        pid = FIRST_RANK + place
        process = writer.process(pid, f"{job}: rank {rank} (stage {stage})", place)
        for stream, rows in mine.group_by(["stream"], maintain_order=True):
            name = stream_name(int(str(stream[0])), rows)
            tid = _stream(writer, (process, pid, tid), name, rows, ends.get((str(job), int(str(rank))), {}))


def _stream(
    writer: TraceWriter,
    place: tuple[int, int, int],
    name: str,
    rows: pl.DataFrame,
    ends: dict[tuple[int, int], Flow],
) -> int:
    """Writes a stream as threads; `place` is the process's track and number, and the first thread's number."""
    process, pid, tid = place
    begin = rows["start_ns"].to_list()
    end = rows["finish_ns"].to_list()
    chosen = lanes(begin, end)
    tracks = []
    for lane in range(max(chosen) + 1):
        tracks.append(writer.thread(pid, tid, name if lane == 0 else f"{name} ({lane + 1})", process))
        tid += 1
    columns = ("label", "kind", "dimension", "iteration", "operation", "ready_ns", "bytes")
    for b, e, lane, row in zip(begin, end, chosen, rows.select(columns).iter_rows(), strict=True):
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


def _links(writer: TraceWriter, result: Result) -> None:
    if "links" not in result.tables:
        return
    links = result.links
    if "utilisation_bins" not in links.columns:
        return
    busiest = links.sort(["utilisation", "link"], descending=[True, False]).head(BUSY_LINKS)
    if not busiest.height:
        return
    process = writer.process(2**31 - 1, "busiest links", 2**20)
    for row in busiest.iter_rows(named=True):
        track = writer.counter(f"{row.get('name', row['link'])} ({row['tier']})", "%", process)
        bins = row["utilisation_bins"]
        for i, value in enumerate(bins):
            writer.count(track, i * row["bin_span_ps"] // 1000, 100 * value)
        writer.count(track, len(bins) * row["bin_span_ps"] // 1000, 0.0)
