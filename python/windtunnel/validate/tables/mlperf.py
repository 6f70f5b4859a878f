"""MLPerf Training runs of language models: step times of submissions, one row a distinct configuration.

A run's layout is in its own log or in the organisation's configuration script for its number of nodes; where several
scripts fit, those whose batch is the run's, and of these the narrower format, since submitters take the fastest.
"""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from windtunnel.engine import InputError
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import Line, lines, racks, training_scenario
from windtunnel.validate.tables.torchtitan import even

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from windtunnel.validate.systems import System

RUNS = (
    "round", "org", "system", "benchmark", "nodes", "accel_per_node", "accel_model", "global_batch_size", "seq_len",
    "grad_accum", "micro_batch", "tp", "pp", "cp", "best_step_s", "best_step_basis",
)  # fmt: skip
CONFIGS = ("round", "org", "benchmark", "config", "params_json")


class Benchmark(NamedTuple):
    """A benchmark's model and what is trained of it."""

    sheet: str
    layers: int
    sequence: int
    lora_rank: int | None


BENCHMARKS = {
    "llama2_70b_lora": Benchmark("llama2-70b", 80, 8192, 16),
    "llama31_8b": Benchmark("llama3-8b", 32, 8192, None),
    "llama31_405b": Benchmark("llama3-405b", 126, 8192, None),
    "gpt3": Benchmark("gpt3-175b", 96, 2048, None),
}
CHIPS = (
    ("GB300", "gb300-nvl72"),
    ("GB200", "gb200-nvl72"),
    ("B300", "dgx-b300"),
    ("B200", "dgx-b200"),
    ("H200-NVL", "h200-nvl"),
    ("H200", "hgx-h200"),
    ("H100", "eos"),
    ("A100", "selene"),
    ("MI300X", "mi300x"),
    ("MI325X", "mi325x"),
    ("MI350X", "mi350x"),
    ("MI355X", "mi355x"),
    ("L40S", "l40s"),
)
"""Names of accelerators as they stand in the runs, the longer first, and systems."""
FOREIGN = {"mi300x", "mi325x", "mi350x", "mi355x", "l40s", "h200-nvl", "dgx-b300", "gb300-nvl72"}


SIZE = re.compile(r"_(\d+)x(\d+)x\d+")


class Layout(NamedTuple):
    """How a run was laid out."""

    tp: int
    pp: int
    cp: int
    vp: int
    micro: int
    precision: str
    overlap: bool


class Config(NamedTuple):
    """A configuration script with the common one's values under its own."""

    name: str
    nodes: int
    gpus: int
    layout: Layout
    minibatch: int


def read(data: Path, systems: Mapping[str, System]) -> Table | None:
    """The median step time of every configuration."""
    path = data / "e2e_iteration" / "mlperf_training_runs.csv"
    scripts = data / "e2e_iteration" / "mlperf_parallelism_configs.csv"
    if not path.is_file():
        return None
    table = Table("mlperf")
    configs = _configs(scripts) if scripts.is_file() else {}
    groups: dict[tuple[str, ...], list[Line]] = defaultdict(list)
    for line in lines(path, RUNS):
        if line.text("benchmark") not in BENCHMARKS:
            table.exclude("not a benchmark of a language model")
        elif not line.text("best_step_s") or "UNRELIABLE" in line.text("best_step_basis").upper():
            table.exclude("no reliable step time")
        else:
            keys = ("round", "org", "system", "benchmark", "nodes", "accel_model", "global_batch_size")
            groups[tuple(line.text(key) for key in keys)].append(line)
    for found in groups.values():
        row = _row(found, configs, systems)
        if isinstance(row, str):
            table.exclude(row, len(found))
            continue
        table.fitted |= systems[row.system].fitted
        if len(found) > 1:
            table.exclude("further runs of a configuration, whose median is the row", len(found) - 1)
        table.add(row)
    return table


def _row(
    found: Sequence[Line], configs: Mapping[tuple[str, str, str], Sequence[Config]], systems: Mapping[str, System]
) -> Row | str:
    line = found[0]
    benchmark = BENCHMARKS[line.text("benchmark")]
    model = line.text("accel_model").upper().replace(" ", "-")
    wanted = next((system for chip, system in CHIPS if chip in model), None)
    if wanted is None or wanted not in systems:
        return f"no file of a system with `{line.text('accel_model')}`"
    system = systems[wanted]
    nodes, per_node = line.count("nodes"), line.count("accel_per_node")
    gpus, batch = nodes * per_node, line.count("global_batch_size")
    chip = next(chip for chip, system in CHIPS if chip in model)
    layout = _layout(line, chip, gpus, batch, configs)
    if layout is None:
        return "no configuration of the organisation for this number of nodes"
    shards = gpus // (layout.tp * layout.pp * layout.cp)
    if shards * layout.tp * layout.pp * layout.cp != gpus or batch % (shards * layout.micro):
        return "the layout does not divide the GPUs or the batch"
    # Submissions capture whole iterations in CUDA graphs.
    training: dict[str, Any] = {"precision": layout.precision, "graphs": "all"}
    if layout.precision == "fp8":
        training["parameters"] = "fp8"
    if benchmark.lora_rank:
        training["lora_rank"] = benchmark.lora_rank
    if layout.overlap and layout.tp > 1:
        training["overlap_chunks"] = layout.tp
    parallelism: dict[str, Any] = {"tp": layout.tp, "pp": layout.pp, "cp": layout.cp, "dp": shards}
    if layout.pp > 1:
        micro_batches = batch // (shards * layout.micro)
        chunks = layout.vp if micro_batches % layout.pp == 0 else 1
        parallelism["schedule"] = {"name": "interleaved", "chunks": chunks} if chunks > 1 else {"name": "1f1b"}
        training["layers_per_stage"] = even(benchmark.layers, layout.pp * chunks)
    sequence = line.count("seq_len") if line.text("seq_len") else benchmark.sequence
    scenario = training_scenario(
        system,
        gpus=gpus,
        workload={
            "model": benchmark.sheet,
            "global_batch": batch,
            "micro_batch": layout.micro,
            "sequence": sequence,
        },
        parallelism=parallelism,
        training=training,
    )
    if int(scenario["topology"]["host"]["gpus"]) != per_node:
        scenario["topology"]["host"] |= {"gpus": per_node, "nics": per_node}
        scenario["topology"]["hosts"] = max(2, nodes)
    racks(scenario, gpus)
    what = f"t{layout.tp}-p{layout.pp}-c{layout.cp}-m{layout.micro}-{layout.precision}"
    name = f"{line.text('round')}-{line.text('org')}-{line.text('system')}-{line.text('benchmark')}"
    return Row(
        id=f"mlperf/{name}-n{nodes}-b{batch}-{what}".replace(" ", "_"),
        system=system.name,
        measured=statistics.median(one.number_in("best_step_s") for one in found),
        scenario=scenario,
        groups={
            "kind": "other chips and FP4"
            if system.name in FOREIGN or layout.precision == "fp4"
            else "H100 to GB200, FP8",
            "size": line.text("benchmark"),
            "chip": chip,
            "scale": f"{gpus} GPUs",
            "precision": layout.precision,
        },
    )


def _layout(
    line: Line, chip: str, gpus: int, batch: int, configs: Mapping[tuple[str, str, str], Sequence[Config]]
) -> Layout | None:
    """The layout of a run, from its own log or from a script."""
    nodes, per_node = line.count("nodes"), line.count("accel_per_node")
    fits = [
        config
        for config in configs.get((line.text("round"), line.text("org"), line.text("benchmark")), ())
        if config.nodes == nodes and config.gpus == per_node and _chip(config.name) in (None, chip)
    ]
    own = [line.text(key) for key in ("tp", "pp", "cp", "micro_batch")]
    if all(own):
        tp, pp, cp, micro = (line.count(key) for key in ("tp", "pp", "cp", "micro_batch"))
        fits = [config for config in fits if (config.layout.tp, config.layout.pp, config.layout.cp) == (tp, pp, cp)]
        same = _narrowest(fits)
        vp = same.layout.vp if same else 1
        precision = same.layout.precision if same else "fp8"
        return Layout(tp, pp, cp, vp, micro, precision, same.layout.overlap if same else False)
    exact = [
        config
        for config in fits
        if config.minibatch * gpus == batch * config.layout.tp * config.layout.pp * config.layout.cp
    ]
    best = _narrowest([config for config in exact if _chip(config.name) == chip]) or _narrowest(exact)
    return best.layout if best else None


def _narrowest(configs: Sequence[Config]) -> Config | None:
    return min(configs, key=lambda config: (config.layout.precision != "fp4", config.name), default=None)


def _chip(name: str) -> str | None:
    """The chip that a script's name names."""
    return next((known for known, _ in CHIPS if known.replace("-", "") in name.upper().replace("-", "")), None)


def _configs(path: Path) -> dict[tuple[str, str, str], list[Config]]:
    """The scripts by round, organisation and benchmark, common values under each one's own."""
    records: dict[tuple[str, str, str], list[tuple[str, dict[str, str], Line]]] = defaultdict(list)
    for line in lines(path, CONFIGS):
        try:
            values = {str(key): str(value) for key, value in json.loads(line.text("params_json")).items()}
        except (ValueError, AttributeError) as error:
            raise InputError(f"{path}:{line.number}: `params_json`: {error}") from error
        key = (line.text("round"), line.text("org"), line.text("benchmark"))
        records[key].append((line.text("config"), values, line))
    found: dict[tuple[str, str, str], list[Config]] = {}
    for key, scripts in records.items():
        common: dict[str, str] = {}
        for name, values, _ in scripts:
            if "common" in name and not re.search(r"_(8b|cg|fp4)\.sh$", name):
                common = {**common, **values}
        size = "8b" if key[2] == "llama31_8b" else ""
        found[key] = [
            config
            for name, values, _ in scripts
            if "common" not in name and (not size or size in name.lower())
            for config in _config(name, {**common, **values})
        ]
    return found


def _config(name: str, values: Mapping[str, str]) -> Iterator[Config]:
    def value(*keys: str, default: int) -> int:
        for key in keys:
            text = values.get(key, "")
            if text.isdigit():
                return int(text)
        return default

    # Some scripts say their size in their name alone: `_1x8x1` is a node of 8 GPUs.
    named = SIZE.search(name)
    nodes = value("DGXNNODES", default=int(named[1]) if named else 0)
    if not nodes:
        return
    gpus = value("DGXNGPU", default=int(named[2]) if named else 8)
    tp, pp, cp = (
        value("TP", "TENSOR_MODEL_PARALLEL", default=1),
        value("PP", "PIPELINE_MODEL_PARALLEL", default=1),
        value("CP", "CONTEXT_PARALLEL", default=1),
    )
    whole = value("GBS", default=0)
    minibatch = value("MINIBS", default=max(1, whole * tp * pp * cp // (nodes * gpus)))
    fp4 = "fp4" in name.lower()
    precision = "fp4" if fp4 else "fp8" if values.get("FP8", "True") in ("True", "1") else "bf16"
    yield Config(
        name,
        nodes,
        gpus,
        Layout(
            tp,
            pp,
            cp,
            value("INTERLEAVED_PIPELINE", "VP", default=1),
            value("MICRO_BATCH_SIZE", "MBS", default=1),
            precision,
            values.get("TP_COMM_OVERLAP", "False") in ("True", "1"),
        ),
        minibatch,
    )
