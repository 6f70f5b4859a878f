from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

class InputError(ValueError): ...
class RunError(RuntimeError): ...

class RunOptions(TypedDict, total=False):
    threads: int | None
    seed: int | None
    fidelity: str | None
    full: bool
    explain: bool
    scheduler: (
        str | type | None
    )  # FILE.py:CLASS; `windtunnel.policies.engine_options` makes of it what the engine takes
    placement: str | type | None
    allow_native: bool  # native code that the scenario names may run

Coded: TypeAlias = tuple[Sequence[str], NDArray[np.uint32]]  # distinct texts, and which of them each row has
Columns: TypeAlias = Mapping[str, NDArray[np.generic] | Sequence[str] | Coded]
Sink: TypeAlias = Callable[[str, Columns], None]
Progress: TypeAlias = Callable[
    [float | None, float, int, str], None
]  # part of the phase that is done, simulated seconds, events, phase

def run(
    text: str,
    source: str,
    base: str,
    overrides: Sequence[tuple[str, str]],
    options: Mapping[str, object],
    sink: Sink,
    progress: Progress,
) -> str: ...
def explain(
    text: str, source: str, base: str, overrides: Sequence[tuple[str, str]], options: Mapping[str, object]
) -> str: ...
def scenario_tree(text: str, source: str, overrides: Sequence[tuple[str, str]]) -> str: ...
def collective_times(text: str) -> str: ...
def compare_events(
    text: str,
    source: str,
    base: str,
    overrides: Sequence[tuple[str, str]],
    options: Mapping[str, object],
    threads: tuple[int, int],
) -> str | None: ...
def topology(text: str, source: str, base: str, request: str = "{}") -> str: ...
def measure_lookups(text: str, source: str, base: str, lookups: int, tables: bool, table_limit: int) -> str: ...
def schema() -> str: ...
def mpi_times(text: str) -> str: ...
def names(kind: str) -> list[tuple[str, str]]: ...
def nearest(found: str, known: Sequence[str]) -> str | None: ...
def units(kind: str) -> list[tuple[str, int]]: ...
def goal_check(path: str) -> str: ...
def goal_stats(path: str) -> str: ...
def goal_convert(source: str, target: str) -> None: ...
def goal_merge(sources: Sequence[str], target: str) -> None: ...
def goal_run(path: str, loggops: str, receiver: str) -> str: ...
def simulate_flows(
    rates: NDArray[np.float64],
    latencies: NDArray[np.float64],
    offsets: NDArray[np.uint32],
    path_links: NDArray[np.uint32],
    bytes: NDArray[np.float64],  # noqa: A002
    starts: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> NDArray[np.float64]: ...
