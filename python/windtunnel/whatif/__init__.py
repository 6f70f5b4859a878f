"""What would happen if: comparisons of a scenario with itself, one thing changed."""

from windtunnel.whatif.change import Change, Difference, Means, add, change, fail
from windtunnel.whatif.drain import Drain, Option, drain

__all__ = ["Change", "Difference", "Drain", "Means", "Option", "add", "change", "drain", "fail"]
