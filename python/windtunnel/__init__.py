"""A wind tunnel for AI clusters: training jobs on simulated fabrics.

Everything public is named here and loaded on first use, so that `import windtunnel` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windtunnel.api import load, resume, run
    from windtunnel.engine import InputError, RunError
    from windtunnel.flows import simulate_flows
    from windtunnel.look import compare, explain, topology
    from windtunnel.many import layouts, sweep
    from windtunnel.plan import Plan
    from windtunnel.results import Result
    from windtunnel.simulation import Simulation
    from windtunnel.version import __version__
    from windtunnel.workload import Workload

__all__ = [
    "InputError",
    "Plan",
    "Result",
    "RunError",
    "Simulation",
    "Workload",
    "__version__",
    "compare",
    "explain",
    "layouts",
    "load",
    "resume",
    "run",
    "simulate_flows",
    "sweep",
    "topology",
]

_HOMES = {
    "InputError": "windtunnel.engine",
    "Plan": "windtunnel.plan",
    "Result": "windtunnel.results",
    "RunError": "windtunnel.engine",
    "Simulation": "windtunnel.simulation",
    "Workload": "windtunnel.workload",
    "__version__": "windtunnel.version",
    "compare": "windtunnel.look",
    "explain": "windtunnel.look",
    "layouts": "windtunnel.many",
    "load": "windtunnel.api",
    "resume": "windtunnel.api",
    "run": "windtunnel.api",
    "simulate_flows": "windtunnel.flows",
    "sweep": "windtunnel.many",
    "topology": "windtunnel.look",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'windtunnel' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
