"""Quantities as people read them."""

from __future__ import annotations

import pytest

from windtunnel import text


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(12.3456, "12.35 s"), (1.0, "1.000 s"),
     (0.99999, "1.000 s"), (0.0123, "12.30 ms"), (2e-6, "2.000 µs"), (0.0, "0 s"),
     (3e-12, "3.000 ps"), (-0.5, "-500.0 ms"), (None, "–"), (float("nan"), "–"),
     (299.9, "299.9 s"), (485.7, "8.095 min"),
     (12345.6, "3.429 h"), (172_799, "48.00 h"), (1_149_090, "13.30 d"), (-432_000, "-5.000 d"), (2e8, "2,315 d")],
)  # fmt: skip
def test_duration(seconds: float | None, shown: str) -> None:
    assert text.duration(seconds) == shown


def test_sizes_are_powers_of_2_and_rates_of_10() -> None:
    assert text.size(1 << 20) == "1.000 MiB"
    assert text.size(1000) == "1000 B"
    assert text.rate(400e9) == "400 Gbps"
    assert text.rate(3.6e12) == "3.6 Tbps"


def test_counts_and_percentages() -> None:
    assert text.count(1234567.8) == "1,234,568"
    assert text.count(2**64 - 1) == "18,446,744,073,709,551,615"
    assert text.short_count(1_234_567) == "1.235 M"
    assert text.percent(0.4321) == "43.2 %"
    assert text.percent(0.02, signed=True) == "+2.0 %"
    assert text.percent(None) == "–"
