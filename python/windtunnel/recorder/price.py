"""What operators of PyTorch take on a GPU: matrix products by the kernel model, others by the bytes that they move."""

from __future__ import annotations

import json
import math
from typing import Any

from ruamel.yaml import YAML

from windtunnel import engine
from windtunnel.cli.workload import quantity
from windtunnel.engine import InputError
from windtunnel.shipped import data

FORMATS = {"bfloat16": "bf16", "float16": "fp16", "float32": "tf32", "float8_e4m3fn": "fp8"}
"""Type of PyTorch → key of a sheet's `peak`."""
REACHED = 0.6
"""Share of the peak that attention reaches: that of FlashAttention-3 on an H100 (arXiv:2407.08608)."""


class Prices:
    """Times of operators on one GPU. Raises `InputError` for a GPU without a sheet."""

    def __init__(self, gpu: str) -> None:
        sheets = {path.stem.casefold(): path for path in sorted((data() / "gpus").glob("*.yaml"))}
        path = sheets.get(gpu.casefold())
        if path is None:
            near = engine.nearest(gpu.casefold(), list(sheets))
            hint = f"did you mean `{near}`?" if near else "`windtunnel list gpus` has them"
            raise InputError(f"--gpu: no data sheet of `{gpu}`\n\nhint: {hint}")
        self.text = path.read_text(encoding="utf-8")
        sheet = YAML(typ="safe").load(self.text)
        self.modelled = "bf16" in ((sheet.get("kernels") or {}).get("gemm") or {})
        self.memory = _bytes_per_second(sheet["memory_bandwidth"]["value"]) * float(
            sheet["efficiency"]["memory"]["value"]
        )
        self.peak = {name: _flops(entry["value"]) for name, entry in sheet["peak"].items()}
        self.launch = quantity("launch", str(sheet["launch"]["value"]), "time") / 1e12
        self.known: dict[tuple[int, int, int], float] = {}
        self.account: dict[str, tuple[int, float]] = {}

    def seconds(self, said: dict[str, Any]) -> float:
        """What an operator takes, as `windtunnel.recorder.stub` writes it down."""
        how, seconds = self._seconds(said)
        count, total = self.account.get(how, (0, 0.0))
        self.account[how] = (count + 1, total + seconds)
        return seconds

    def _seconds(self, said: dict[str, Any]) -> tuple[str, float]:
        moved = self.launch + said["bytes"] / self.memory
        peak = self.peak.get(FORMATS.get(said["dtype"], "tf32")) or max(self.peak.values())
        if "gemm" in said:
            batch, m, n, k = said["gemm"]
            # The model is of bf16 and single products; others by their share of the peak, a batch as one of as many
            # rows.
            if self.modelled:
                scale = self.peak["bf16"] / peak
                return "matrix products, by the kernel model", self._gemm(batch * m, n, k) * max(scale, 1.0)
            flops = 2.0 * batch * m * n * k
            return "matrix products, by the peak", max(moved, self.launch + flops / (REACHED * peak))
        if "flops" in said:
            return "attention, by the peak", max(moved, self.launch + said["flops"] / (REACHED * peak))
        return "others, by bytes moved", moved

    def _gemm(self, m: int, n: int, k: int) -> float:
        key = (max(m, 1), max(n, 1), max(k, 1))
        if key not in self.known:
            asked = {"sheet": self.text, "family": "gemm", "format": "bf16", "rows": [list(key)]}
            self.known[key] = float(json.loads(engine.kernel_times(json.dumps(asked)))["times"][0][0])
        return self.known[key]


def _flops(text: str) -> float:
    number, _, unit = str(text).partition(" ")
    return float(number) * {"TFLOPS": 1e12, "PFLOPS": 1e15, "GFLOPS": 1e9}.get(unit.strip(), math.nan)


def _bytes_per_second(text: str) -> float:
    return quantity("memory_bandwidth", str(text), "rate") / 8
