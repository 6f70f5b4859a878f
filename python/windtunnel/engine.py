"""The one door to the native engine: every other module imports it from here.

`_engine` is a private extension module; what it raises (`InputError`, `RunError`) is part of the public surface.
"""

from windtunnel._engine import (
    InputError,
    RunError,
    explain,
    goal_check,
    goal_convert,
    goal_merge,
    goal_run,
    goal_stats,
    measure_lookups,
    names,
    run,
    schema,
    simulate_flows,
    topology,
)

__all__ = [
    "InputError",
    "RunError",
    "explain",
    "goal_check",
    "goal_convert",
    "goal_merge",
    "goal_run",
    "goal_stats",
    "measure_lookups",
    "names",
    "run",
    "schema",
    "simulate_flows",
    "topology",
]
