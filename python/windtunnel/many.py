"""Many runs from Python: `sweep` and `layouts`, as frames."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.engine import InputError
from windtunnel.given import override_pairs
from windtunnel.native import consented
from windtunnel.source import read_source
from windtunnel.studies.check import check_fidelity, check_values
from windtunnel.studies.design import axis
from windtunnel.studies.rows import DEFAULT_METRICS, rows
from windtunnel.studies.runner import Limits, run_points
from windtunnel.studies.store import Store
from windtunnel.studies.study import Study, default_name, metric_names
from windtunnel.study_frame import study_frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windtunnel.layout.search import Fabric


def sweep(
    scenario: str | Path | Mapping[str, Any],
    *,
    vary: Mapping[str, Any] | None = None,
    metrics: str | Sequence[str] = DEFAULT_METRICS,
    seeds: int = 1,
    overrides: Mapping[str, object] | None = None,
    fidelity: str | None = None,
    workers: int | None = None,
    time_limit_s: float | None = None,
    memory_limit_bytes: int | None = None,
    memory_bytes: int | None = None,
    engine: str = "local",
    fresh: bool = False,
    tables: bool = False,
    store: str | Path | None = None,
    allow_native: bool = False,
) -> pl.DataFrame:
    """Runs a scenario at every combination of `vary` and returns a frame of a row each.

    `vary` has keys of the scenario, each with its values (NumPy's too) or `{"from", "to", "scale", "points"}`; without
    it `scenario` is the path of a study, which says all but `overrides`, `workers`, `fresh` and `store` itself. Columns
    are the varied keys, each metric and `METRIC ±`, half of its 95% interval over the seeds, `state`, `message`, `runs`
    and `folder`. Runs are kept in `store`, and served from it; in none if it is None, and `folder` is null.
    `tables` keeps the tables of each run there, for `windtunnel.load(folder)`.
    `allow_native` lets the library of `network.backend` run in their processes (`windtunnel.native`).

    A run that takes longer than `time_limit_s`, or its process more than `memory_limit_bytes`, is a row that says so.
    `engine` is `local`, `ray` or `ray:ADDRESS` (`docs/scale-out.md`); with `local` all runs together take
    `memory_bytes` at most, 80% of what is free if None.

    Raises `InputError` for a scenario, a key, a value without its unit or a metric that is no good, before anything is
    run but for the metric. A point that is refused is a row.
    """
    study, asked = _study(scenario, vary, metrics, seeds, overrides, fidelity)
    planned = consented(study.plan(), allow=allow_native)
    check_values(study, planned[0])
    limits = Limits(workers, time_limit_s, memory_limit_bytes, together_bytes=memory_bytes, engine=engine)
    with _opened(store) as opened:
        outcomes = list(run_points(planned, opened, limits=limits, fresh=fresh, tables=tables))
        frame = study_frame(rows(planned, outcomes, asked), study.varied_keys(), asked)
    return _lasting(frame, store)


def layouts(
    scenario: str | Path | Mapping[str, Any],
    *,
    job: str | None = None,
    gpus: int | None = None,
    fabric: Fabric = "ideal",
    top: int | None = 20,
    schedules: Sequence[str] | None = None,
    micro_batches: Sequence[int] | None = None,
    zero: Sequence[int] | None = None,
    recompute: Sequence[str] | None = None,
    overrides: Mapping[str, object] | None = None,
    workers: int | None = None,
    engine: str = "local",
    store: str | Path | None = None,
) -> pl.DataFrame:
    """Every layout of a job on its GPUs as a frame, the fastest first (`windtunnel.layouts`, `docs/layouts.md`).

    `top` of the best are exact, all that fit if None. `engine` is that of `sweep`. Columns are `tp`, `cp`, `ep`, `pp`,
    `dp`, `zero`, `schedule`, `chunks`, `micro_batch`, `recompute`; `state` and `message`; `memory_bytes`; `least_s`,
    `ideal_s` and `real_s`, seconds of an iteration; `mfu`, `tokens_per_s`, `folder` (null without `store`). Raises
    `InputError` where there is nothing to lay out.
    """
    from windtunnel.layout.job import read_job  # noqa: PLC0415
    from windtunnel.layout.search import search  # noqa: PLC0415
    from windtunnel.layout.space import Space  # noqa: PLC0415

    space = Space(
        schedules=tuple(schedules) if schedules is not None else Space.schedules,
        micro_batches=None if micro_batches is None else tuple(micro_batches),
        zero=None if zero is None else tuple(zero),
        recompute=None if recompute is None else tuple(recompute),
    )
    asked = read_job(read_source(scenario), override_pairs(overrides), job, gpus)
    with _opened(store) as opened:
        found = search(asked, opened, space=space, fabric=fabric, top=top, limits=Limits(workers, engine=engine))
    return _lasting(pl.DataFrame([row.record() for row in found], infer_schema_length=None), store)


def _lasting(frame: pl.DataFrame, store: str | Path | None) -> pl.DataFrame:
    """A frame whose `folder` is null where the store is gone by now."""
    return frame if store is not None else frame.with_columns(folder=pl.lit(None, pl.String))


@contextmanager
def _opened(store: str | Path | None) -> Iterator[Store]:
    """The store in a folder; without one, a store that is gone afterwards."""
    if store is not None:
        with Store(Path(store)) as found:
            yield found
        return
    with tempfile.TemporaryDirectory(prefix="windtunnel-") as folder, Store(Path(folder)) as found:
        yield found


def _study(
    scenario: str | Path | Mapping[str, Any],
    vary: Mapping[str, Any] | None,
    metrics: str | Sequence[str],
    seeds: int,
    overrides: Mapping[str, object] | None,
    fidelity: str | None,
) -> tuple[Study, tuple[str, ...]]:
    """What is asked, and the figures."""
    asked = metric_names(metrics, "metrics") or DEFAULT_METRICS
    if vary is None:
        if not isinstance(scenario, str | Path):
            raise InputError("expected `vary`, or the path of a study")
        study = Study.read(Path(scenario))
        from dataclasses import replace  # noqa: PLC0415

        return replace(study, overrides=(*study.overrides, *override_pairs(overrides))), study.metrics or asked
    if not isinstance(vary, Mapping):
        raise InputError(f"vary: expected a mapping of keys to their values, found `{vary}`")
    check_fidelity(fidelity, "fidelity")
    source = read_source(scenario)
    axes = tuple(axis(_key(key), _values(values), f"vary[{key!r}]") for key, values in vary.items())
    name = default_name(Path(source.name)) if source.name != "<scenario>" else "sweep"
    study = Study(name, source, tuple(override_pairs(overrides)), axes, seeds=seeds, metrics=asked, fidelity=fidelity)
    return study, asked


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise InputError(f"vary: expected keys of the scenario, found `{key!r}`")
    return key


def _values(values: object) -> object:
    """A range as it is; values as a list, NumPy's as plain ones. What is no list `axis` refuses."""
    if isinstance(values, Mapping):
        return dict(values)
    listed = getattr(values, "tolist", None)
    found = values if listed is None else listed()
    if isinstance(found, str) or not isinstance(found, Iterable):
        return found
    return [value.item() if hasattr(value, "item") else value for value in found]
