"""GPUs by the names that drivers give them: whether a log is of the GPU that a system has."""

from __future__ import annotations

import re
from functools import cache

from windtunnel.experiments.spec import parse_yaml
from windtunnel.validate.quantities import quantity
from windtunnel.validate.written import DATA

MEMORY = re.compile(r"(\d+)gi?b")


@cache
def _sheets() -> dict[str, float]:
    """Memory of every sheet's GPU, bytes, by its name."""
    found = {}
    for path in sorted((DATA / "gpus").glob("*.yaml")):
        record = parse_yaml(path.read_text(encoding="utf-8"), str(path))
        found[str(record["name"])] = quantity(record["memory"]["value"], "size", f"{path}: memory")
    return found


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]


def _model(sheet: str) -> str:
    """What names of a GPU's variants share: `a100` of A100-40 and A100-80, `rtx` of RTX-PRO-6000."""
    return _words(sheet)[0]


def another(gpu: str, told: str) -> bool:
    """Whether `told`, a driver's name ("NVIDIA A100-SXM4-40GB"), is another GPU than that of the sheet `gpu`.

    Variants with other memory are others where both have sheets. A name of AMD's that says the architecture alone
    (`gfx942`) is no name of a GPU, and says nothing.
    """
    words = _words(told)
    own = next((name for name in _sheets() if name.lower() == gpu.lower()), None)
    if own is None or not words or words[0].startswith("gfx"):
        return False
    if _model(own) not in words:
        return True
    memory = next((found for found in map(MEMORY.fullmatch, words) if found), None)
    if memory is None:
        return False
    size = int(memory[1]) * 2.0**30
    variants = [held for name, held in _sheets().items() if _model(name) == _model(own)]
    return min(variants, key=lambda held: abs(held - size)) != _sheets()[own]
