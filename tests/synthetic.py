"""A run folder made by hand: a small 1F1B pipeline whose figures a test can work out.

Stage s does the forward of microbatch m as early as its order allows; forward takes 1 ms, backward 2 ms, sending
0.1 ms.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.engine import TableWriter
from windtunnel.results import Result
from windtunnel.results.manifest import manifest

if TYPE_CHECKING:
    from pathlib import Path

MS = 10**9
"""Picoseconds of a millisecond."""

FORWARD, BACKWARD, HOP = 1 * MS, 2 * MS, MS // 10


@dataclass
class Rows:
    """Rows of a table, column by column."""

    columns: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, **values: object) -> None:
        for name, value in values.items():
            self.columns.setdefault(name, []).append(value)

    def arrays(self) -> dict[str, Any]:
        return {
            name: values if isinstance(values[0], str) else np.array(values, dtype=_dtype(name, values))
            for name, values in self.columns.items()
        }


def _dtype(name: str, values: list[Any]) -> type[np.generic]:
    if name.endswith("_ps") or name == "bytes":
        return np.uint64
    return np.float64 if isinstance(values[0], float) else np.uint32


def order(stage: int, stages: int, microbatches: int) -> list[tuple[str, int]]:
    """1F1B: warm-up forwards, then one forward and one backward in turn, then the backwards left."""
    warmup = min(stages - 1 - stage, microbatches)
    steps = [("forward", m) for m in range(warmup)]
    for m in range(microbatches - warmup):
        steps += [("forward", warmup + m), ("backward", m)]
    return steps + [("backward", m) for m in range(microbatches - warmup, microbatches)]


def pipeline(stages: int, microbatches: int) -> dict[tuple[int, str, int], tuple[int, int]]:
    """Start and finish in ps of every (stage, forward or backward, microbatch)."""
    queues = [order(s, stages, microbatches) for s in range(stages)]
    clocks = [0] * stages
    spans: dict[tuple[int, str, int], tuple[int, int]] = {}
    while any(queues):
        for stage, queue in enumerate(queues):
            while queue:
                kind, m = queue[0]
                before = stage - 1 if kind == "forward" else stage + 1
                ready = 0
                if 0 <= before < stages:
                    if (before, kind, m) not in spans:
                        break
                    ready = spans[before, kind, m][1] + HOP
                start = max(ready, clocks[stage])
                clocks[stage] = start + (FORWARD if kind == "forward" else BACKWARD)
                spans[stage, kind, m] = start, clocks[stage]
                queue.pop(0)
    return spans


def operations(stages: int, microbatches: int, layers: int = 1) -> dict[str, Any]:
    """The `operations` table: `layers` computations per pass, with a TP collective on stream 1 in each, and sends."""
    rows = Rows()
    n = 0
    for (stage, kind, m), (start, finish) in sorted(pipeline(stages, microbatches).items(), key=lambda i: i[1]):
        step = (finish - start) // layers
        common = {"job": "pretrain", "rank": stage * 8, "stage": stage, "episode": 0, "iteration": 1}
        for layer in range(layers):
            at = start + layer * step
            label = f"{kind[0].upper()}0.{m} layer{layer}"
            rows.add(**common, operation=n, label=label, kind="calc", dimension="other", stream=0, ready_ps=at,
                     start_ps=at, finish_ps=at + step, bytes=0)  # fmt: skip
            rows.add(**common, operation=n + 1, label="all_reduce", kind="collective", dimension="tp", stream=1,
                     ready_ps=at, start_ps=at + step // 2, finish_ps=at + step, bytes=1 << 20)  # fmt: skip
            n += 2
        if 0 <= (to := stage + (1 if kind == "forward" else -1)) < stages:
            rows.add(**common, operation=n, label=f"send to stage {to}", kind="send", dimension="pp", stream=2,
                     ready_ps=finish, start_ps=finish, finish_ps=finish + HOP, bytes=1 << 24)  # fmt: skip
            n += 1
    return rows.arrays()


def write_run(folder: Path, *, stages: int = 4, microbatches: int = 16, layers: int = 2, flows: int = 2000) -> Result:
    """Writes a run folder with all tables of a flow-fidelity run."""
    folder.mkdir(parents=True, exist_ok=True)
    with TableWriter(folder) as writer:
        summary = emit(writer, stages=stages, microbatches=microbatches, layers=layers, flows=flows)
    record = manifest(summary, source="synthetic.yaml", overrides=[], options={}, rows=writer.rows)
    (folder / "summary.json").write_text(json.dumps(summary, indent=2))
    (folder / "manifest.json").write_text(json.dumps(record, indent=2))
    return Result(folder)


def emit(writer: TableWriter, *, stages: int, microbatches: int, layers: int, flows: int) -> dict[str, Any]:
    """Gives the tables to `writer` and returns the summary."""
    ops = operations(stages, microbatches, layers)
    span = int(ops["finish_ps"].max())
    compute = microbatches * (FORWARD + BACKWARD)
    parts = {"compute": compute, "exposed_tp": 0, "exposed_cp": 0, "exposed_ep": 0, "exposed_pp": 6 * HOP,
             "exposed_dp": 3 * MS, "exposed_other": 0, "bubble": span - compute - 6 * HOP, "straggler": MS // 5,
             "host": MS // 50}  # fmt: skip
    iteration = sum(parts.values())
    _iterations(writer, parts, iteration, span)
    writer.sink("operations", ops)
    rng = np.random.default_rng(7)
    _flows(writer, flows, rng)
    links = _links(writer, iteration, rng)
    _jobs(writer, parts, iteration)
    return _summary(parts, iteration, flows, links)


def _iterations(writer: TableWriter, parts: dict[str, int], iteration: int, span: int) -> None:
    rows = Rows()
    path = Rows()
    for i in range(3):
        rows.add(job="pretrain", episode=0, iteration=i, start_ps=i * iteration, finish_ps=(i + 1) * iteration,
                 critical_rank=24, **{f"{name}_ps": value for name, value in parts.items()})  # fmt: skip
        at = i * iteration
        for step, (name, value) in enumerate(parts.items()):
            link = "leaf0 -> spine3; spine3 -> leaf1" if name == "exposed_dp" else ""
            path.add(job="pretrain", episode=0, iteration=i, step=step, rank=24, label=f"all {name}", links=link,
                     category=name.removeprefix("exposed_"), start_ps=at, finish_ps=at + value)  # fmt: skip
            at += value
    writer.sink("iterations", rows.arrays())
    writer.sink("critical_path", path.arrays())
    assert span > 0


def _jobs(writer: TableWriter, parts: dict[str, int], iteration: int) -> None:
    rows = Rows()
    rows.add(job="pretrain", state="finished", ranks=512, iterations=3, simulated_iterations=3,
             iteration_time_s=iteration / 1e12, **{f"{name}_s": value / 1e12 for name, value in parts.items()},
             tokens_per_s=4194304 / (iteration / 1e12), mfu=0.412, memory_bytes_per_gpu=61.4 * 2**30)  # fmt: skip
    writer.sink("jobs", rows.arrays())


def _flows(writer: TableWriter, n: int, rng: np.random.Generator) -> None:
    start = np.sort(rng.integers(0, 50 * MS, n)).astype(np.uint64)
    paths = np.array(["scale-up", "same-leaf", "same-pod", "beyond"])[rng.integers(0, 4, n)]
    spread = {"scale-up": 0.05, "same-leaf": 0.3, "same-pod": 0.5, "beyond": 0.8}
    fct = (rng.lognormal(0, 0.4, n) * [spread[p] for p in paths] * MS).astype(np.uint64)
    writer.sink("flows", {
        "source": rng.integers(0, 512, n).astype(np.uint32),
        "destination": rng.integers(0, 512, n).astype(np.uint32),
        "bytes": np.full(n, 1 << 22, dtype=np.uint64),
        "start_ps": start,
        "finish_ps": start + fct,
        "dimension": ["dp"] * n,
        "path": paths.tolist(),
        "hops": np.full(n, 4, dtype=np.uint32),
    })  # fmt: skip


def _links(writer: TableWriter, iteration: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    tiers = {"scale-up": 64, "nic": 64, "leaf-up": 32, "leaf-down": 32}
    bins = 128
    names = [f"{tier}[{i}]" for tier, n in tiers.items() for i in range(n)]
    tier_of = [tier for tier, n in tiers.items() for _ in range(n)]
    wave = np.clip(np.sin(np.linspace(0, 9, bins))[None, :] * 0.5 + rng.random((len(names), bins)) * 0.5, 0, 1)
    mean = wave.mean(axis=1)
    rate = np.array([3.6e12 if tier == "scale-up" else 4e11 for tier in tier_of])
    carried = (mean * rate / 8 * 3 * iteration / 1e12).astype(np.uint64)
    writer.sink("links", {
        "link": np.arange(len(names), dtype=np.uint32), "name": names, "tier": tier_of, "rate_bps": rate,
        "bytes": carried, "utilisation": mean,
        "peak_utilisation": wave.max(axis=1), "utilisation_bins": wave,
        "bin_span_ps": np.full(len(names), 3 * iteration // bins, dtype=np.uint64),
    })  # fmt: skip
    top = np.argsort(-mean)[:5]
    return [
        {"name": names[i], "tier": tier_of[i], "utilisation": float(mean[i]), "bytes": int(carried[i])} for i in top
    ]


def _summary(parts: dict[str, int], iteration: int, flows: int, links: list[dict[str, Any]]) -> dict[str, Any]:
    exposed = {key: parts[f"exposed_{key}"] / 1e12 for key in ("tp", "cp", "ep", "pp", "dp", "other")}
    time_s = iteration / 1e12
    gib = 2**30
    memory = {"weights": 16.4 * gib, "gradients": 16.4 * gib, "optimiser": 6.2 * gib, "activations": 20.4 * gib,
              "buffers": 2.0 * gib, "total": 61.4 * gib, "capacity": 80 * gib}  # fmt: skip
    job = {"name": "pretrain", "state": "finished", "ranks": 512, "iterations": 3, "simulated_iterations": 3,
           "iteration_time_s": {"mean": time_s, "p50": time_s, "p99": time_s, "max": time_s},
           "compute_s": parts["compute"] / 1e12, "exposed_communication_s": sum(exposed.values()),
           "exposed_s": exposed, "bubble_s": parts["bubble"] / 1e12, "straggler_s": parts["straggler"] / 1e12,
           "host_s": parts["host"] / 1e12, "ideal_iteration_time_s": time_s * 0.96,
           "tokens_per_s": 4194304 / time_s, "mfu": 0.412, "memory_bytes_per_gpu": memory["total"],
           "submit_s": 0.0, "start_s": 0.0, "finish_s": 3 * time_s, "lost_s": 0.0, "memory": memory}  # fmt: skip
    return {"windtunnel": "0.1.0", "scenario": "synthetic", "scenario_sha256": "ab" * 32, "seed": 1,
            "fidelity": "flow", "partial": False, "fold": 1, "simulated_time_s": 3 * time_s, "wall_time_s": 1.5,
            "cpu_time_s": 1.4, "events": 1234567, "packet_hops": None, "data_packet_hops": None,
            "peak_memory_bytes": 300 << 20, "peak_rss_bytes": 500 << 20, "jobs": [job],
            "network": {"messages": flows, "bytes_delivered": flows << 22, "packets_delivered": None,
                        "packets_dropped": None, "loss_rate": None, "ecn_marked": None, "pfc_pause_s": None,
                        "retransmissions": None, "mean_queueing_delay_s": None, "reordered_packets": None,
                        "links_most_loaded": links},
            "flows": {"count": flows, "fct_mean_s": 4e-4, "fct_p50_s": 3e-4, "fct_p99_s": 2e-3, "fct_max_s": 4e-3},
            "cluster": {"utilisation": 1.0, "gpu_seconds": {"busy": 512 * 3 * time_s, "idle": 0.0, "stranded": 0.0,
                        "failed": 0.0, "draining": 0.0}, "waiting_s": {"mean": 0.0, "p50": 0.0, "p99": 0.0},
                        "makespan_s": 3 * time_s, "goodput": 1.0, "jobs": 1, "finished": 1,
                        "slowdown": {"mean": 1.0, "p50": 1.0, "p99": 1.0}, "preemptions": 0, "lost_gpu_s": 0.0,
                        "skipped": None},
            "evidence": [{"constant": "H100-SXM peak bf16", "kind": "data sheet",
                          "source": "NVIDIA H100 data sheet"},
                         {"constant": "GEMM efficiency", "kind": "inferred",
                          "source": "published tables"}], "warnings": []}  # fmt: skip
