"""What a run at packet fidelity met that flow fidelity knows nothing of."""

from __future__ import annotations

from typing import Any

from windtunnel.text import duration, percent

WAITING_S = 1e-6
"""Mean wait in queues from which it is told."""

UNEVEN = 0.02
"""Surplus of the fullest uplink from which it is told."""


def unseen(summary: dict[str, Any]) -> list[str] | None:
    """Phrases of what flow fidelity would not have seen, most telling first; None at other fidelities.

    From the run's own counters: losses, pauses, marks, what was sent again or came out of order, waiting in queues, and
    uplinks that hashed packets filled unevenly, which fluid flows fill alike.
    """
    network = summary.get("network") or {}
    if summary.get("fidelity") != "packet" or network.get("packets_delivered") is None:
        return None
    phrases = []
    if dropped := network.get("packets_dropped"):
        phrases.append(f"{_packets(dropped)} lost ({percent(network.get('loss_rate'))})")
    if again := network.get("retransmissions"):
        phrases.append(f"{again:,} sent again")
    if pause := network.get("pfc_pause_s"):
        phrases.append(f"pauses of {duration(pause)} over all ports")
    if marks := network.get("ecn_marked"):
        phrases.append(f"{marks:,} marked by queues")
    if reordered := network.get("reordered_packets"):
        phrases.append(f"{reordered:,} out of order")
    if (wait := network.get("mean_queueing_delay_s")) and wait >= WAITING_S:
        phrases.append(f"{duration(wait)} in queues for a mean packet")
    if (uneven := network.get("path_unevenness")) and uneven >= UNEVEN:
        phrases.append(f"uplinks that hashed paths fill unevenly (one {percent(uneven, signed=True)})")
    return phrases


def unseen_line(summary: dict[str, Any]) -> str | None:
    """The same as a line; None at other fidelities."""
    phrases = unseen(summary)
    if phrases is None:
        return None
    if not phrases:
        return "no loss, pause, mark or queue that flow fidelity would not see"
    return f"flow fidelity would not see: {', '.join(phrases)}"


def _packets(number: int) -> str:
    return f"{number:,} packet{'' if number == 1 else 's'}"
