"""Colours of figures differ for all readers: CIE 1976 differences under normal sight and the three dichromacies."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest

from windtunnel.breakdown import PARTS
from windtunnel.report.axes import box
from windtunnel.report.gantt import KINDS
from windtunnel.report.html import COLOURS

LEAST = 20.0
"""Difference from which neighbouring areas are told apart at a glance; 2.3 is just noticeable."""

SIGHT = {
    "normal": np.eye(3),
    # Machado, Oliveira, Fernandes, "A physiologically-based model for simulation of color vision deficiency", IEEE TVCG
    # 2009, table 1, severity 1.
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


def seen(colour: str, matrix: object) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """CIE L*a*b* of a colour as somebody with that sight has it."""
    srgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.asarray(matrix) @ linear, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = (np.asarray(to_xyz) @ linear) / [0.95047, 1.0, 1.08883]
    fx, fy, fz = (np.cbrt(v) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


@pytest.mark.parametrize("sight", SIGHT)
def test_parts_and_kinds_of_work_differ(sight: str) -> None:
    named = {part.name: part.colour for part in PARTS}
    named |= {name: colour for key, (name, colour) in KINDS.items() if key in ("forward", "backward", "weight")}
    assert len(set(named.values())) == len(named) == 13
    for (one, a), (other, b) in combinations(named.items(), 2):
        difference = float(np.linalg.norm(seen(a, SIGHT[sight]) - seen(b, SIGHT[sight])))
        assert difference > LEAST, f"{one} and {other} differ by {difference:.1f}"


def contrast(one: str, other: str) -> float:
    """Ratio of the luminances of two colours, as WCAG 2.1 has it."""

    def luminance(colour: str) -> float:
        srgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_no_area_vanishes_in_the_dark() -> None:
    """Some colours are as dark as the paper; an edge of 3:1, which WCAG 2.1 asks of what is no text, shows them."""
    _, dark = COLOURS.split("@media (prefers-color-scheme: dark)")
    (paper,) = re.findall(r"--paper: (#\w{6})", dark)
    (edge,) = re.findall(r'\[style\^="fill:#"\] \{ stroke: (#\w{6})', dark)
    areas = {colour for _, colour in KINDS.values()} | {part.colour for part in PARTS}
    assert min(contrast(colour, paper) for colour in areas) < 1.5
    assert contrast(edge, paper) > 3
    for colour in ("ink", "muted"):
        (found,) = re.findall(rf"--{colour}: (#\w{{6}})", dark)
        assert contrast(found, paper) > 4.5
    # What the rule is about is how areas are drawn.
    assert 'style="fill:#14102c"' in box(0, 0, 1, 1, KINDS["backward"][1])
