"""A scenario that is ready to run, as a value: ask it, change it, copy it, send it to another machine, run it."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from windtunnel import engine
from windtunnel.api import run_anywhere
from windtunnel.given import override_pairs, plain_options
from windtunnel.policies import engine_options
from windtunnel.source import Source, read_source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windtunnel._engine import Gate
    from windtunnel.progress import AnyProgress
    from windtunnel.results import Result


class Plan:
    """Everything that a run needs, checked and resolved.

    `scenario` is a path, YAML text or a mapping, as for `windtunnel.run`. Raises `InputError` for a value that is
    wrong, at whatever fidelity it would be read. A plan can be pickled: it takes along the files that it
    names, so that a process on another machine needs none of them.

        plan = windtunnel.Plan("scenario.yaml")
        plan.set("jobs[0].parallelism.tp", 4)
        plan.run().summary
    """

    def __init__(
        self,
        scenario: str | Path | Mapping[str, Any],
        *,
        fidelity: str | None = None,
        seed: int | None = None,
        overrides: Mapping[str, object] | None = None,
        full: bool = False,
    ) -> None:
        source = read_source(scenario)
        pairs = override_pairs(overrides)
        options = plain_options({"fidelity": fidelity, "seed": seed, "full": full})
        self._planned = engine.Plan(source.text, source.name, str(source.base), pairs, engine_options(options))
        self._full = options["full"]
        self._base = source.base
        # What was unpacked stays as long as a plan reads it.
        self._files: _Files | None = None

    def set(self, key: str | Mapping[str, object], value: object = None) -> Self:
        """Sets a key, as `--set KEY=VALUE` does, or several, and resolves what depends on them; None takes a key out.

        Several may be right only together, such as a higher `tp` and a lower `dp`: nothing is resolved between them.
        Returns the plan. Raises `InputError` if the value is wrong, and the plan is what it was.
        """
        changes = {key: value} if isinstance(key, str) else key
        self._planned = self._planned.with_set(override_pairs(changes))
        return self

    def copy(self) -> Self:
        """Another plan, which is the same until one of them is changed."""
        fresh = object.__new__(type(self))
        fresh.__dict__.update(self.__dict__)
        return fresh

    __copy__ = copy

    @property
    def scenario(self) -> dict[str, Any]:
        """The scenario as it is written, with what was set."""
        tree: dict[str, Any] = json.loads(self._planned.scenario())
        return tree

    @property
    def digest(self) -> dict[str, Any]:
        """What decides its figures: `sha256` of the scenario and its files, `inputs` (name and SHA-256), `build`."""
        digest: dict[str, Any] = json.loads(self._planned.digest())
        return digest

    def explain(self) -> dict[str, Any]:
        """Layers, bytes, FLOPs, memory and schedule of its jobs; nothing is run."""
        explanation: dict[str, Any] = json.loads(self._planned.explain())
        return explanation

    def run(
        self,
        *,
        threads: int | None = None,
        allow_native: bool = False,
        out: str | Path | None = None,
        progress: AnyProgress | None = None,
        gate: Gate | None = None,
    ) -> Result:
        """Runs it; the options and what is raised are those of `windtunnel.run`."""
        # Messages, manifests and journals say what would give the same run.
        source = Source(json.dumps(self.scenario, indent=2), self._planned.source(), self._base)
        options = plain_options({"threads": threads, "full": self._full, "allow_native": allow_native})
        return run_anywhere(source, [], options, out=out, progress=progress, plan=self._planned, gate=gate)

    def __getstate__(self) -> tuple[bytes, bool]:
        return self._planned.pack(), self._full

    def __setstate__(self, state: tuple[bytes, bool]) -> None:
        packed, self._full = state
        self._files = _Files()
        self._base = self._files.folder
        self._planned = engine.Plan.unpack(packed, str(self._base))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest["sha256"])

    def __repr__(self) -> str:
        return f"<windtunnel.Plan {self.scenario.get('name')!r}, {self.digest['sha256'][:12]}>"


class _Files:
    """A folder that lives as long as somebody holds this."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="windtunnel-plan-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
