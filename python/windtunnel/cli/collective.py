"""`windtunnel collective`."""

from __future__ import annotations

import json as json_
from typing import Annotated

from rich.text import Text

from windtunnel.cli.app import DONE
from windtunnel.cli.console import out, print_json, talk
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.engine import InputError

app = Commands()


@app.command()
def collective(
    operation: Annotated[
        str,
        Argument(metavar="OP", help="all_reduce, all_gather, reduce_scatter, broadcast, reduce, alltoall or sendrecv."),
    ],
    system: Annotated[str | None, Option(metavar="NAME", help="A system of data/systems.")] = None,
    gpu: Annotated[str | None, Option(metavar="NAME", help="A sheet of data/gpus, in place of a system.")] = None,
    gpus: Annotated[int | None, Option(metavar="N", min=1, help="Ranks, one a GPU; those of one host.")] = None,
    nic: Annotated[str | None, Option(metavar="NAME", help="A sheet of data/nics, with --gpu.")] = None,
    per_host: Annotated[int | None, Option(metavar="N", min=1, help="GPUs of a host that take part.")] = None,
    least: Annotated[str, Option("--from", metavar="SIZE", help="The smallest size.")] = "8 B",
    most: Annotated[str, Option("--to", metavar="SIZE", help="The largest size.")] = "16 GiB",
    factor: Annotated[int, Option(min=2, help="By what sizes grow.")] = 2,
    env: Annotated[list[str] | None, Option(metavar="NAME=VALUE", help="NCCL's environment. Repeatable.")] = None,
    json: Annotated[bool, Option("--json", help="Print JSON and nothing else.")] = False,
) -> int:
    """Print what nccl-tests would: size, time, bandwidths, algorithm and protocol of a collective on a machine."""
    from windtunnel import collective as asked
    from windtunnel.validate.quantities import quantity

    if (system is None) == (gpu is None):
        raise InputError(
            "expected `--system NAME` or `--gpu NAME`, "
            + ("found neither" if system is None else "found both")
            + "\n\nhint: for example `windtunnel collective all_reduce --gpu H100-SXM --gpus 64 --nic ConnectX-7`"
        )
    if gpu is not None:
        machine, ranks = asked.machine_of(gpu, gpus or 8, nic, per_host)
    else:
        if nic is not None:
            raise InputError("--nic: a system has its NICs\n\nhint: name `--gpu` instead of `--system`")
        machine = asked.system_of(str(system))
        ranks = asked.ranks_of(machine, gpus, per_host)
    environment = []
    for pair in env or []:
        name, found, value = pair.partition("=")
        if not found:
            raise InputError(f"--env: expected NAME=VALUE, found `{pair}`\n\nhint: for example `--env NCCL_ALGO=ring`")
        environment.append((name, value))
    of = asked.sizes(int(quantity(least, "size", "--from")), int(quantity(most, "size", "--to")), factor)
    lines = asked.table(machine, ranks, operation, of, environment)
    if json:
        record = {
            "operation": operation,
            "ranks": ranks.hosts * ranks.ranks,
            "hosts": ranks.hosts,
            "constants": asked.known_by(machine),
            "lines": [line.record() for line in lines],
        }
        print_json(json_.dumps(record))
        return DONE
    talk().print(
        Text(f"{operation}: {ranks.hosts * ranks.ranks} ranks on {ranks.hosts} hosts\n{asked.known_by(machine)}"),
        style="dim",
        soft_wrap=True,
    )
    out().print(Text(asked.text(lines)), soft_wrap=True)
    return DONE
