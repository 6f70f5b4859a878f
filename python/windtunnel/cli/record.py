"""`windtunnel record`: traces of every rank of a PyTorch program."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from windtunnel.cli.app import DONE, FAILED
from windtunnel.cli.console import out, talk
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.recorder import record as run_recorded

app = Commands()


@app.command("record")
def record(
    command: Annotated[
        list[str],
        Argument(metavar="-- COMMAND...", help="The program, such as `torchrun --nproc-per-node 4 train.py`."),
    ],
    target: Annotated[Path, Option("-o", "--out", metavar="FOLDER", help="Where traces go, one a rank.")] = Path(
        "traces"
    ),
    skip: Annotated[int, Option(min=0, help="Optimizer steps before the first that is recorded.")] = 2,
    steps: Annotated[int, Option(min=0, help="Optimizer steps to record; 0 for all from the process group on.")] = 3,
    stub: Annotated[
        int | None, Option(min=1, metavar="RANKS", help="Capture so many ranks without GPUs or peers, into a workload.")
    ] = None,
    gpu: Annotated[str, Option(help="With --stub: the GPU on which operators take their time.")] = "H100-SXM",
    gpus: Annotated[int, Option(min=1, help="With --stub: GPUs of a host.")] = 8,
) -> int:
    """Run a distributed PyTorch program with its profiler set up for `windtunnel import kineto`, or capture it."""
    if stub is not None:
        return _captured(command, target, ranks=stub, gpu=gpu, gpus=gpus, steps=steps)
    found = run_recorded(command, target, skip=skip, steps=steps)
    if found.status:
        talk().print(f"the program ended with exit status {found.status}", markup=False)
    if not found.ranks:
        talk().print(
            "no rank wrote a trace: expected a program that calls `torch.distributed.init_process_group` and takes "
            f"{skip + steps} optimizer steps\n\nhint: `--steps 0` records all from the process group to its end",
            markup=False,
            soft_wrap=True,
        )
        return found.status or FAILED
    out().print(f"recorded {len(found.ranks)} of {found.world or '?'} ranks in {target}/", markup=False, soft_wrap=True)
    more = ""
    if found.missing:
        out().print(f"no trace of ranks {', '.join(map(str, found.missing))}", markup=False, soft_wrap=True)
        more = " --missing same"
    out().print(f"windtunnel import kineto {shlex.quote(str(target))} -o step.wtw{more}", markup=False, soft_wrap=True)
    return found.status or DONE


def _captured(command: list[str], target: Path, *, ranks: int, gpu: str, gpus: int, steps: int) -> int:
    from windtunnel.recorder import capture
    from windtunnel.text import duration

    found = capture(command, target, ranks=ranks, gpu=gpu, gpus=gpus, steps=steps)
    out().print(
        f"wrote {target}: {found.ranks:,} ranks, {found.operations:,} operations, {found.collectives:,} calls of "
        f"collectives, {found.messages:,} messages, {found.steps} steps",
        markup=False,
        soft_wrap=True,
    )
    for how, (count, seconds) in sorted(found.priced.items()):
        out().print(f"{how}: {count:,}, {duration(seconds)}", markup=False, soft_wrap=True)
    return DONE
