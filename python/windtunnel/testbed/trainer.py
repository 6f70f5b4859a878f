"""The program of a rank of the testbed's training job: a small transformer under PyTorch's data parallelism over gloo.

It stands alone (no import of the package), so that any Python that has PyTorch runs it in a namespace. The plan is the
first line of its standard input, as JSON: `rank`, `world`, `master`, `port`, `interface`, `width`, `layers`,
`sequence`, `batch`, `vocabulary`, `steps`, and the address `from` which it gets gradients. Once all ranks are joined it
prints `joined`. At the second line it trains and prints a line of JSON:

- `alone`: seconds of each step that exchanged nothing, before and after the others;
- `steps`: the instants by the monotonic clock at which each step that exchanged gradients began and ended;
- `buckets`: bytes of the gradients' buckets in the order in which they are exchanged;
- `ways`: its connections, as the other's address, its own port and the other's.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

WARM = 3
"""Steps that are not counted: data parallelism forms its buckets anew after the first, and TCP opens its windows."""


def main() -> None:
    """Reads the plan, joins, trains, and prints what it found."""
    plan = json.loads(sys.stdin.readline())
    os.environ["GLOO_SOCKET_IFNAME"] = plan["interface"]
    # Found only by a Python that has it, and only once the interface is named.
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{plan['master']}:{plan['port']}",
        rank=plan["rank"],
        world_size=plan["world"],
        timeout=timedelta(seconds=120),
    )
    model = _model(torch, plan)
    # All gradients in few buckets of known sizes; no buffers, so nothing else is sent.
    parallel = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    optimiser = torch.optim.SGD(parallel.parameters(), lr=0.01)
    tokens = torch.randint(plan["vocabulary"], (plan["batch"], plan["sequence"] + 1))

    def step() -> None:
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(parallel(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimiser.step()

    def alone(count: int) -> list[float]:
        found = []
        with parallel.no_sync():
            for _ in range(count):
                began = time.monotonic()
                step()
                found.append(time.monotonic() - began)
        return found

    print("joined", flush=True)
    sys.stdin.readline()
    for _ in range(WARM):
        step()
    ways = connections(plan["from"], plan["port"])
    before = alone(plan["steps"])
    dist.barrier()
    steps = []
    for _ in range(plan["steps"]):
        began = time.monotonic()
        step()
        steps.append([began, time.monotonic()])
    after = alone(plan["steps"])
    print(
        json.dumps({"alone": before + after, "steps": steps, "buckets": _buckets(parallel), "ways": ways}), flush=True
    )
    sys.stdin.readline()


def connections(source: str, store: int) -> list[tuple[str, int, int]]:
    """Connections of this process but for those to the store's port.

    What goes back to `source` are acknowledgements: low delay, which goes first where a port has bands.
    """
    found = []
    for place in Path("/proc/self/fd").iterdir():
        try:
            if not place.is_socket():
                continue
            with socket.socket(fileno=os.dup(int(place.name))) as connection:
                to, own = connection.getpeername(), connection.getsockname()
                if len(to) < 2 or store in {to[1], own[1]}:
                    continue
                address = to[0].removeprefix("::ffff:")
                if address == source:
                    connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x10)
                found.append((address, own[1], to[1]))
        except OSError:
            # It is no connection, or not any more.
            continue
    return sorted(found)


def _model(torch: Any, plan: dict[str, int]) -> Any:  # noqa: ANN401 - PyTorch may not be here
    """A decoder of `layers` layers of `width`, its words and its output."""
    width = plan["width"]
    layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    # Copies of one layer; nested tensors are for inference.
    body = torch.nn.TransformerEncoder(layer, plan["layers"])
    return torch.nn.Sequential(
        torch.nn.Embedding(plan["vocabulary"], width), body, torch.nn.Linear(width, plan["vocabulary"])
    )


def _buckets(parallel: Any) -> list[int]:  # noqa: ANN401
    """Bytes of the buckets as they are, after they were formed anew."""
    said = parallel._get_ddp_logging_data()  # noqa: SLF001 - there is no other way to ask
    text = said.get("rebuilt_bucket_sizes") or said["bucket_sizes"]
    return [int(size) for size in str(text).split(",")]


if __name__ == "__main__":
    main()
