"""Units and suggestions of the Python shell are the engine's: a unit or a hint that one has, the other has too."""

from __future__ import annotations

import pytest

from conftest import ROOT
from windtunnel import engine
from windtunnel.calibrate.kernels import TIMES
from windtunnel.validate.quantities import UNITS, quantity
from windtunnel.whatif.drain import seconds


def test_quantities_are_scaled_as_written_out() -> None:
    """To the last bit: published predictions depend on it."""
    assert quantity("1.3 us", "time", "a") == 1.3 * 1e-6
    assert quantity("200 Gbps", "rate", "a") == 200 * 125e6
    assert quantity("64 KiB", "size", "a") == 65536.0
    assert quantity("2.5 cm", "length", "a") == 2.5 * 1e-2
    assert [UNITS["time"][unit] for unit in ("ps", "ns", "us", "ms", "s")] == [1e-12, 1e-9, 1e-6, 1e-3, 1.0]
    assert [TIMES[unit] for unit in ("ns", "us", "ms", "s")] == [1e-9, 1e-6, 1e-3, 1.0]
    assert [seconds(f"2 {unit}", "a") for unit in ("ms", "min", "h", "d", "y")] == [2e-3, 120, 7200, 172800, 63072000]


@pytest.mark.parametrize("kind", ["time", "calendar", "size", "rate", "length"])
def test_units_grow_from_the_base_unit(kind: str) -> None:
    units = engine.units(kind)
    assert units[0][1] == 1
    assert len({name for name, _ in units}) == len(units)


def test_a_kind_of_quantity_that_is_none_is_told() -> None:
    with pytest.raises(ValueError, match="no kind of quantity: `colour`"):
        engine.units("colour")


def test_suggestions_come_from_one_place() -> None:
    assert engine.nearest("fidelty", ["topology", "fidelity"]) == "fidelity"
    assert engine.nearest("weather", ["topology", "fidelity"]) is None
    others = [path for path in (ROOT / "python").rglob("*.py") if "difflib" in path.read_text(encoding="utf-8")]
    assert others == []
