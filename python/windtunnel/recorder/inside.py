"""What runs in the processes of a recorded program: the profiler from the process group on, a trace a rank at the end.

It stands alone: the program's Python needs torch and need not have Windtunnel. Settings come by environment
variables: `WINDTUNNEL_RECORD_DIR` (where traces go), `WINDTUNNEL_RECORD_SKIP` and `WINDTUNNEL_RECORD_STEPS`
(optimizer steps before, and recorded; 0 recorded steps: all from the process group to its end).
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

WATCHED = "torch.distributed.distributed_c10d"


def watch() -> None:
    """Waits for the program to import torch's process groups."""
    sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the watched module as others would, and has it changed once it is there."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != WATCHED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                _change(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _change(module: Any) -> None:
    """Has the recording begin behind `init_process_group` and end before `destroy_process_group`."""
    begin, end = module.init_process_group, module.destroy_process_group
    recording = _Recording()

    def init_process_group(*given: Any, **named: Any) -> Any:
        answer = begin(*given, **named)
        recording.start(module)
        return answer

    def destroy_process_group(*given: Any, **named: Any) -> Any:
        if not given and not named:
            recording.stop()
        return end(*given, **named)

    init_process_group.__doc__, destroy_process_group.__doc__ = begin.__doc__, end.__doc__
    module.init_process_group, module.destroy_process_group = init_process_group, destroy_process_group


class _Recording:
    """The profiler of one process."""

    def __init__(self) -> None:
        self.profiler: Any = None
        self.rank = 0
        self.first: Any = None
        self.steps = 0
        self.written = False

    def start(self, distributed: Any) -> None:
        if self.profiler is not None or self.written:
            return
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self.rank = distributed.get_rank()
        skip, steps = (int(os.environ.get(f"WINDTUNNEL_RECORD_{name}", "0")) for name in ("SKIP", "STEPS"))
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        schedule = None
        if steps:
            # The profiler's own first step is slow: it warms up in one, which is skipped too.
            schedule = torch.profiler.schedule(wait=max(skip - 1, 0), warmup=min(skip, 1), active=steps, repeat=1)
            register_optimizer_step_post_hook(self.step)
        # Without shapes collectives of a CPU, and old NCCL kernels, say no sizes.
        self.profiler = torch.profiler.profile(
            activities=activities, schedule=schedule, record_shapes=True, on_trace_ready=self.write
        )
        self.profiler.start()
        atexit.register(self.stop)

    def step(self, optimizer: Any, *_: Any) -> None:
        """A step of the program is one of the optimizer that steps first; programs with several step them in turn."""
        if self.first is None:
            self.first = id(optimizer)
        if self.first == id(optimizer):
            self.steps += 1
            if self.profiler is not None and not self.written:
                self.profiler.step()

    def write(self, profiler: Any) -> None:
        folder = Path(os.environ["WINDTUNNEL_RECORD_DIR"])
        # Not half-written under its name: a rank may be killed when another has ended.
        beside = folder / f".rank{self.rank}.partial.json"
        profiler.export_chrome_trace(str(beside))
        beside.replace(folder / f"rank{self.rank}.json")
        self.written = True

    def stop(self) -> None:
        profiler, self.profiler = self.profiler, None
        if profiler is None:
            return
        profiler.stop()
        if not self.written:
            print(
                f"windtunnel record: rank {self.rank} took {self.steps} optimizer steps, too few to record one\n\n"
                "hint: give fewer to `--skip`, or `--steps 0` to record all from `init_process_group` to the end",
                file=sys.stderr,
            )
