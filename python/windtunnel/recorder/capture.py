"""A workload of a PyTorch program at a scale that one does not have, without GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.engine import InputError
from windtunnel.recorder.launch import HERE
from windtunnel.recorder.price import Prices
from windtunnel.results.folder import write_beside

if TYPE_CHECKING:
    from collections.abc import Sequence

HOST_STREAM = 6
"""Where marks of steps stand, as in recordings."""
COMPUTE, FIRST_GROUP, GROUPS = 0, 1, 5
"""Streams: of operators, and of process groups, each a stream of its own while there are enough."""
SENDS, RECEIVES = 8, 9
"""Streams of messages between two ranks."""
TAGS = 1 << 16
"""Tags of a process group."""


@dataclass(frozen=True)
class Captured:
    """What was captured."""

    out: Path
    ranks: int
    operations: int
    collectives: int
    """Calls, over all ranks."""
    messages: int
    """Sends, over all ranks."""
    steps: int
    priced: dict[str, tuple[int, float]] = field(default_factory=dict)
    """How an operator's time was found: how many, and their seconds, over all ranks."""


def capture(
    command: Sequence[str], out: Path, *, ranks: int, gpu: str = "H100-SXM", gpus: int = 8, steps: int = 3
) -> Captured:
    """Runs `command` once for each of `ranks`, with fake process groups and tensors, and writes what would run.

    `gpu` prices operators; `gpus` of them are on a host (`LOCAL_RANK`). The program ends after `steps` optimizer
    steps, or by itself if that is 0. `out` ends in `.jsonl` or `.wtw`.

    Raises:
        InputError: the command cannot be started, ends with an error, or makes no process group.

    """
    if out.suffix not in (".jsonl", ".wtw"):
        raise InputError(f"-o {out}: expected a name that ends in `.jsonl` or `.wtw`")
    prices = Prices(gpu)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = os.environ.get("PYTHONPATH")
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(HERE / "hook"), *([before] if before else [])]),
            "WINDTUNNEL_RECORDER": str(HERE / "stub.py"),
            "WINDTUNNEL_STUB_DIR": name,
            "WINDTUNNEL_STUB_RANKS": str(ranks),
            "WINDTUNNEL_STUB_GPUS": str(gpus),
            "WINDTUNNEL_STUB_STEPS": str(steps),
        }
        try:
            status = subprocess.run(list(command), env=environment, check=False).returncode
        except OSError as error:
            raise InputError(f"cannot start `{command[0]}`: {error.strerror}") from error
        refused = folder / "refused"
        if refused.is_file():
            raise InputError(
                f"PyTorch {refused.read_text(encoding='utf-8')} of `{command[0]}` has no fake process groups "
                "(`torch.testing._internal.distributed.fake_pg`)\n\n"
                "hint: give a Python with a newer one; captures were tried with 2.9"
            )
        if status:
            raise InputError(
                f"the program ended with exit status {status}\n\n"
                "hint: what it reads of its tensors is 0, and they have no memory; what needs numbers is not captured"
            )
        files = [folder / f"rank{rank}.jsonl" for rank in range(ranks)]
        missing = [rank for rank, file in enumerate(files) if not file.is_file() or not file.stat().st_size]
        if missing:
            raise InputError(
                f"rank {missing[0]} captured nothing: expected a Python program that calls "
                "`torch.distributed.init_process_group`\n\n"
                "hint: give `python train.py`, not a launcher of several processes"
            )
        lines = _Lines(ranks, prices)
        for rank, file in enumerate(files):
            lines.rank(rank, file)
    text = "".join(json.dumps(line) + "\n" for line in lines.all())
    if out.suffix == ".jsonl":
        write_beside(out, text.encode())
    else:
        with tempfile.TemporaryDirectory() as name:
            plain = Path(name) / "captured.jsonl"
            plain.write_text(text, encoding="utf-8")
            engine.edit_workload(json.dumps({"do": "convert", "file": str(plain), "out": str(out)}))
    return Captured(out, ranks, len(lines.operations), lines.collectives, lines.messages, lines.steps, prices.account)


class _Lines:
    """Lines of a hand-written workload."""

    def __init__(self, ranks: int, prices: Prices) -> None:
        self.ranks = ranks
        self.prices = prices
        self.groups: dict[tuple[int, ...], str] = {}
        self.operations: list[dict[str, Any]] = []
        self.collectives = 0
        self.messages = 0
        self.steps = 0

    def all(self) -> list[dict[str, Any]]:
        head: list[dict[str, Any]] = [{"windtunnel_workload": 1, "ranks": self.ranks}]
        named = [{"communicator": name, "ranks": list(group)} for group, name in self.groups.items() if name != "world"]
        return head + named + self.operations

    def _group(self, members: list[int]) -> str:
        key = tuple(members)
        if key not in self.groups:
            self.groups[key] = "world" if key == tuple(range(self.ranks)) else f"group{len(self.groups)}"
        return self.groups[key]

    def _message(self, said: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Which messages one keeps its order with, and its operation; tags of process groups are apart."""
        members = said["group"] or list(range(self.ranks))
        self._group(members)
        tag = list(self.groups).index(tuple(members)) * TAGS + int(said["tag"]) % TAGS
        kind = "send" if "send" in said else "receive"
        ends: dict[str, Any] = {"tag": tag}
        if said[kind] is not None:
            ends["to" if kind == "send" else "from"] = said[kind]
        if kind == "send":
            ends["bytes"] = f"{max(said['bytes'], 1)} B"
            self.messages += 1
        stream = SENDS if kind == "send" else RECEIVES
        return f"{kind} {said[kind]} {tag}", {"name": kind, kind: ends, "label": kind, "stream": stream}

    def rank(self, rank: int, file: Path) -> None:
        """Adds what `rank` did."""
        last: str | None = None
        calls: dict[int, str] = {}
        streams: dict[str, int] = {}
        behind: dict[str, str] = {}
        open_step: str | None = None
        steps = 0
        count = 0

        def add(after: list[str | None], **what: Any) -> str:  # noqa: ANN401
            nonlocal count
            name = f"{what.pop('name', 'op')}-{count}"
            count += 1
            waits = list(dict.fromkeys(each for each in after if each is not None))
            self.operations.append({"rank": rank, "id": name, **what, **({"after": waits} if waits else {})})
            return name

        said_by = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        last_mark = max((said["step"] for said in said_by if "step" in said), default=0)
        for said in said_by:
            waits: list[str | None] = [calls[number] for number in said.get("after", ())]
            if "op" in said:
                seconds = self.prices.seconds(said)
                what = {
                    "compute": f"{round(seconds * 1e12)} ps",
                    "name": said["op"],
                    "label": said["op"],
                    "stream": COMPUTE,
                }
                last = add([last, *waits], **what)
            elif "collective" in said:
                if said["group"] is None or len(said["group"]) < 2:
                    continue
                group = self._group(said["group"])
                stream = streams.setdefault(group, FIRST_GROUP + len(streams) % GROUPS)
                what = {"collective": said["collective"], "communicator": group, "stream": stream}
                if said["collective"] != "barrier":
                    what["bytes"] = f"{max(said['bytes'], 1)} B"
                if said["collective"] in ("broadcast", "reduce"):
                    what["root"] = said["root"]
                behind[group] = calls[said["number"]] = add(
                    [last, behind.get(group), *waits], name=said["collective"], **what
                )
                self.collectives += 1
            elif "send" in said or "receive" in said:
                pair, what = self._message(said)
                # Messages of one pair keep their order; a receive waits for no operator: its buffer is free.
                before = [behind.get(pair), *([last, *waits] if "send" in said else [])]
                behind[pair] = calls[said["number"]] = add(before, **what)
            elif "step" in said or "end" in said:
                # What stands behind the last step is no step.
                if open_step is not None and "step" in said:
                    last = add(
                        [last, *behind.values()],
                        compute="0 ps",
                        name="step",
                        stream=HOST_STREAM,
                        label=f"{open_step} end",
                    )
                    steps += 1
                open_step = None
                if "step" in said and said["step"] < last_mark:
                    open_step = f"step#{said['step']}"
                    last = add([last], compute="0 ps", name="step", stream=HOST_STREAM, label=f"{open_step} begin")
        self.steps = max(self.steps, steps)
