"""An iteration beside the same one on an ideal fabric, in words."""

from __future__ import annotations

from windtunnel.text import percent

ROUNDING = 0.0005
"""Up to here a difference is none."""

WHY = {
    "message": "`message` sends messages one after another (LogGOPS) where the ideal fabric gives them equal shares",
    "flow": "what shares a NIC on the way may end in a better order than by equal shares of the NICs alone",
    "packet": "packets may share a NIC in a better order than by equal shares",
}
"""Why an iteration of a fidelity may be shorter than the ideal one."""


def against(mean: float, ideal: float) -> str:
    """By how much an iteration is longer than an ideal one, `+4.2 %`; `faster` where it is shorter."""
    more = mean / ideal - 1
    return "faster" if more < -ROUNDING else percent(max(0.0, more), signed=True)


def remark(mean: float, ideal: float, fidelity: str) -> str:
    """What the fabric costs, or why it seems to cost less than nothing."""
    more = mean / ideal - 1
    if more >= -ROUNDING:
        return f"this fabric takes {percent(max(0.0, more), signed=True)}"
    why = WHY.get(fidelity)
    return f"shorter than on the ideal fabric by {percent(-more)}" + (f": {why}" if why else "")
