"""NVIDIA's DGX Cloud benchmarks (release 25.01): step times of NeMo as the GPUs and the batch grow together.

A row tells the model, the layout and the batch. Besides its time, what a series shows is its growth: the time of a step
over that of the same series' smallest scale, which the table's facts say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import Line, gpt, lines, training_scenario
from windtunnel.validate.tables.torchtitan import even

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from windtunnel.validate.systems import System

COLUMNS = (
    "series", "model", "layers", "hidden", "heads", "kv_heads", "ffn", "mlp", "vocab", "gpu", "gpus", "precision",
    "tp", "pp", "cp", "virtual_stages", "micro_batch", "global_batch", "sequence", "iteration_s",
)  # fmt: skip
SYSTEM = "eos"
GPU = "H100 SXM 80GB"
MLPS = ("swiglu", "squared relu", "gelu")


def read(data: Path, systems: Mapping[str, System]) -> Table | None:
    """The published steps."""
    path = data / "e2e_iteration" / "dgxc_weak_scaling.csv"
    if not path.is_file():
        return None
    system = systems.get(SYSTEM)
    table = Table("dgxc", fitted=system.fitted if system else frozenset(), facts=growth)
    for line in lines(path, COLUMNS):
        if system is None:
            table.exclude(f"no file of system `{SYSTEM}`")
        elif line.text("gpu") != GPU:
            table.exclude(f"no system with `{line.text('gpu')}`")
        else:
            _add(table, line, system)
    return table


def config(line: Line) -> dict[str, Any]:
    """The `config.json` of a row's model."""
    layers, hidden, heads, kv, width, vocabulary, sequence = (
        line.count(column) for column in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "sequence")
    )
    kind = line.text("mlp")
    if kind not in MLPS:
        raise InputError(f"{line.path}:{line.number}: `mlp`: expected one of {', '.join(MLPS)}, found `{kind}`")
    if kind == "gelu":
        return gpt(layers, hidden, heads, sequence, vocabulary, width)
    return {
        "model_type": "llama" if kind == "swiglu" else "nemotron",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": width,
        "vocab_size": vocabulary,
    }


def _add(table: Table, line: Line, system: System) -> None:
    gpus, tp, pp, cp, chunks, micro, batch = (
        line.count(column) for column in ("gpus", "tp", "pp", "cp", "virtual_stages", "micro_batch", "global_batch")
    )
    dp = gpus // (tp * pp * cp)
    if dp * tp * pp * cp != gpus or batch % (dp * micro):
        return table.exclude("the layout does not divide the GPUs or the batch")
    precision = line.text("precision")
    training: dict[str, Any] = {"precision": precision}
    if precision == "fp8":
        training["parameters"] = "fp8"
    parallelism: dict[str, Any] = {"tp": tp, "pp": pp, "cp": cp, "dp": dp}
    if pp > 1:
        parallelism["schedule"] = {"name": "interleaved", "chunks": chunks} if chunks > 1 else {"name": "1f1b"}
        training["layers_per_stage"] = even(line.count("layers"), pp * chunks)
    series = line.text("series")
    table.add(
        Row(
            id=f"dgxc/{series.replace(' ', '-')}-g{gpus}",
            system=system.name,
            measured=line.number_in("iteration_s"),
            scenario=training_scenario(
                system,
                gpus=gpus,
                workload={
                    "model": "model.json",
                    "global_batch": batch,
                    "micro_batch": micro,
                    "sequence": line.count("sequence"),
                },
                parallelism=parallelism,
                training=training,
            ),
            groups={"size": line.text("model"), "kind": precision, "scale": f"{gpus} GPUs", "series": series},
            models={"model.json": config(line)},
        )
    )
    return None


def growth(rows: Sequence[tuple[Row, float]], beside: Sequence[tuple[Row, float]]) -> dict[str, float]:
    """By series, in percent: the time at its largest scale over that at its smallest, as predicted and as measured."""
    del beside
    series: dict[str, list[tuple[int, float, float]]] = {}
    for row, time in rows:
        scale = int(row.groups["scale"].split()[0])
        series.setdefault(row.groups["series"], []).append((scale, time, row.measured))
    found = {}
    for name, points in sorted(series.items()):
        (_, first, truth), (_, last, end) = min(points), max(points)
        if len(points) > 1:
            found[f"growth of {name}, predicted, %"] = 100 * (last / first - 1.0)
            found[f"growth of {name}, measured, %"] = 100 * (end / truth - 1.0)
    return found
