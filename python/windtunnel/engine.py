"""The one door to the native engine: every other module imports it from here.

`_engine` is a private extension module; what it raises (`InputError`, `RunError`) is part of the public surface. The
environment's `WINDTUNNEL_ENGINE` names another module in its place: the engine with transports of one's own, built as
`examples/own-transport` shows.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windtunnel._engine import (
        Estimates,
        Gate,
        InputError,
        Plan,
        RunError,
        TableWriter,
        build,
        collective_times,
        compare_events,
        detect_recordings,
        edit_workload,
        estimate_each,
        estimate_line,
        explain,
        goal_check,
        goal_convert,
        goal_merge,
        goal_run,
        goal_stats,
        import_recordings,
        journal_request,
        kernel_times,
        measure_lookups,
        members,
        mpi_times,
        names,
        nearest,
        read_table,
        run,
        scenario_tree,
        schema,
        simulate_flows,
        topology,
        units,
    )
else:
    _engine = import_module(os.environ.get("WINDTUNNEL_ENGINE") or "windtunnel._engine")
    Estimates = _engine.Estimates
    Gate = _engine.Gate
    InputError = _engine.InputError
    Plan = _engine.Plan
    RunError = _engine.RunError
    TableWriter = _engine.TableWriter
    build = _engine.build
    collective_times = _engine.collective_times
    compare_events = _engine.compare_events
    detect_recordings = _engine.detect_recordings
    edit_workload = _engine.edit_workload
    estimate_each = _engine.estimate_each
    estimate_line = _engine.estimate_line
    explain = _engine.explain
    goal_check = _engine.goal_check
    goal_convert = _engine.goal_convert
    goal_merge = _engine.goal_merge
    goal_run = _engine.goal_run
    goal_stats = _engine.goal_stats
    import_recordings = _engine.import_recordings
    journal_request = _engine.journal_request
    kernel_times = _engine.kernel_times
    measure_lookups = _engine.measure_lookups
    members = _engine.members
    mpi_times = _engine.mpi_times
    names = _engine.names
    nearest = _engine.nearest
    read_table = _engine.read_table
    run = _engine.run
    scenario_tree = _engine.scenario_tree
    schema = _engine.schema
    simulate_flows = _engine.simulate_flows
    topology = _engine.topology
    units = _engine.units

__all__ = [
    "Estimates",
    "Gate",
    "InputError",
    "Plan",
    "RunError",
    "TableWriter",
    "build",
    "collective_times",
    "compare_events",
    "detect_recordings",
    "edit_workload",
    "estimate_each",
    "estimate_line",
    "explain",
    "goal_check",
    "goal_convert",
    "goal_merge",
    "goal_run",
    "goal_stats",
    "import_recordings",
    "journal_request",
    "kernel_times",
    "measure_lookups",
    "members",
    "mpi_times",
    "names",
    "nearest",
    "read_table",
    "run",
    "scenario_tree",
    "schema",
    "simulate_flows",
    "topology",
    "units",
]
