"""What would happen if: comparisons of a scenario with itself, one thing changed."""

from windtunnel.whatif.drain import Drain, Option, drain

__all__ = ["Drain", "Option", "drain"]
