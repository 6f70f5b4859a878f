"""What runs in a program that is captured without GPUs or peers: operators and collectives of a rank.

Process groups are PyTorch's `fake` ones, tensors have shapes and no memory (`FakeTensorMode`), and a dispatch mode
writes down what would have run. Ranks are captured one after another: the process forks once for each before the
program begins, so torch is imported once. Settings come by environment variables: `WINDTUNNEL_STUB_DIR`,
`WINDTUNNEL_STUB_RANKS` (of the process group), `WINDTUNNEL_STUB_GPUS` (of a host) and `WINDTUNNEL_STUB_STEPS`
(optimizer steps, 0 for all).

Each rank writes JSON lines: operators (`op`, and `gemm: [batch, m, n, k]` or `flops`, `bytes`, `dtype`), collectives
(`collective`, `bytes`, `group`), messages (`send` or `receive`: the other rank, `bytes`, `group`, `tag`), and marks of
steps (`step`). `after` numbers the collectives and receives whose results an operator reads: how the program waits does
not matter, because data say it.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

KINDS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "all_reduce": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "barrier": "barrier",
}
"""Operators of `c10d` and `_c10d_functional`, without a `_` at their end."""
MESSAGES = {"send": "send", "recv": "receive", "recv_any_source": "receive"}
"""Operators of `c10d` between two ranks."""
ROOTED = {"scatter": ("send", "receive"), "gather": ("receive", "send")}
"""Those between one rank and all others: what the root does with each, and each with it."""
ROOTED_TAG = (1 << 16) - 1
"""Tag of their messages, which programs do not use."""
SPACES = ("aten", "fsdp")
"""Namespaces of operators: PyTorch's own, and copies in and out of buffers that FSDP has for itself."""
FREE = {
    "view", "_unsafe_view", "reshape", "t", "transpose", "permute", "expand", "slice", "select", "split", "detach",
    "alias", "as_strided", "unsqueeze", "squeeze", "unbind", "empty", "empty_like", "empty_strided", "new_empty",
    "lift_fresh", "chunk", "narrow", "split_with_sizes", "is_same_size", "record_stream", "set_", "resize_",
    "wait_tensor",
}  # fmt: skip
"""Operators that launch no kernel."""


def watch() -> None:
    """Forks once for each rank; returns in the children, each of which then runs the program as that rank."""
    folder, ranks = Path(os.environ["WINDTUNNEL_STUB_DIR"]), int(os.environ["WINDTUNNEL_STUB_RANKS"])
    gpus = int(os.environ.get("WINDTUNNEL_STUB_GPUS", "8"))
    import torch
    import torch.distributed

    try:
        from torch.testing._internal.distributed import fake_pg  # noqa: F401
    except ImportError:
        # Whoever imports this swallows what it raises, and the program would run on its own.
        (folder / "refused").write_text(torch.__version__, encoding="utf-8")
        os._exit(1)

    torch.set_num_threads(1)
    # Of tensors without memory, which is as it should be here.
    warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            os.environ |= {
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_RANK": str(rank % gpus),
                "LOCAL_WORLD_SIZE": str(min(gpus, ranks)),
                "GROUP_RANK": str(rank // gpus),
                "MASTER_ADDR": "localhost",
                "MASTER_PORT": "1",
            }
            _capture(folder, rank, ranks)
            return
        _, status = os.waitpid(child, 0)
        if status:
            print(f"windtunnel record: rank {rank} did not come to its end", file=sys.stderr, flush=True)
            os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)
    os._exit(0)


def _capture(folder: Path, rank: int, ranks: int) -> None:
    """Has the program of this process captured from its process group on."""
    import atexit

    import torch.distributed as dist
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed import distributed_c10d
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.testing._internal.distributed.fake_pg import FakeStore

    most = int(os.environ.get("WINDTUNNEL_STUB_STEPS", "0"))
    out = _Out(folder / f"rank{rank}.jsonl")
    real = distributed_c10d.init_process_group
    tensors = FakeTensorMode(allow_non_fake_inputs=True)
    mode = _mode(out)

    def init_process_group(*_: Any, **__: Any) -> None:
        real("fake", store=FakeStore(), rank=rank, world_size=ranks)
        tensors.__enter__()
        mode.__enter__()
        out.step()

    first: list[int] = []

    def stepped(optimizer: Any, *_: Any) -> None:
        if not first:
            first.append(id(optimizer))
        if first[0] == id(optimizer):
            out.step()
            if most and out.steps > most:
                out.close()
                sys.stdout.flush()
                os._exit(0)

    register_optimizer_step_post_hook(stepped)
    distributed_c10d.init_process_group = init_process_group
    dist.init_process_group = init_process_group
    _no_numbers()
    _no_moves()
    _meshes()
    _objects(folder, rank)
    _data_parallel()
    atexit.register(out.close)


def _no_numbers() -> None:
    """Numbers that a program asks of its tensors (a loss to print) are 0: there are none.

    Within a step of an optimizer they are 1: Adam divides by what it makes of the number of its steps.
    """
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    number = 0

    def stepping(now: int) -> Any:
        def hook(*_: Any) -> None:
            nonlocal number
            number = now

        return hook

    register_optimizer_step_pre_hook(stepping(1))
    register_optimizer_step_post_hook(stepping(0))
    torch.Tensor.item = lambda self: float(number) if self.is_floating_point() else number
    torch.Tensor.__float__ = lambda _self: float(number)
    torch.Tensor.__bool__ = lambda _self: False


def _no_moves() -> None:
    """Modules stay where they are: tensors without memory have no place, and cannot be exchanged in place."""
    import torch

    def to(self: Any, *given: Any, **named: Any) -> Any:
        _, dtype, *_ = torch._C._nn._parse_to(*given, **named)
        if dtype is not None:
            for tensor in [*self.parameters(), *self.buffers()]:
                if tensor.is_floating_point():
                    tensor.data = tensor.data.to(dtype)
        return self

    def stay(self: Any, *_: Any, **__: Any) -> Any:
        return self

    torch.nn.Module.to = to
    torch.nn.Module.cuda = torch.nn.Module.cpu = stay
    torch.cuda.set_device = lambda _device: None


def _meshes() -> None:
    """Device meshes are lists of ranks in tensors, and are looked into: those have numbers."""
    import functools

    import torch.distributed
    from torch.distributed import device_mesh
    from torch.utils._python_dispatch import _disable_current_modes

    def apart(run: Any) -> Any:
        @functools.wraps(run)
        def plain(*given: Any, **named: Any) -> Any:
            with _disable_current_modes():
                return run(*given, **named)

        return plain

    for name, member in list(vars(device_mesh.DeviceMesh).items()):
        if callable(member) and not isinstance(member, (type, staticmethod, classmethod)):
            setattr(device_mesh.DeviceMesh, name, apart(member))
    device_mesh.init_device_mesh = apart(device_mesh.init_device_mesh)
    torch.distributed.init_device_mesh = device_mesh.init_device_mesh


def _objects(folder: Path, rank: int) -> None:
    """Objects that ranks send each other (shapes, in pipelines) go through files: ranks run one after another.

    So they may go to ranks with greater numbers alone. Tensors among them are shapes.
    """
    import pickle

    import torch
    import torch.distributed as dist
    from torch.distributed import distributed_c10d
    from torch.utils._pytree import tree_map

    counts: dict[tuple[int, int], int] = {}

    def place(source: int, target: int) -> Path:
        number = counts[source, target] = counts.get((source, target), -1) + 1
        return folder / f"objects-{source}-{target}-{number}"

    def other(given: int | None, place_in_group: int | None, group: Any) -> int:
        if given is not None:
            return given
        found: int = dist.get_global_rank(group or dist.group.WORLD, place_in_group or 0)
        return found

    def flat(leaf: Any) -> Any:
        return ("tensor", tuple(leaf.shape), leaf.stride(), leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf

    def whole(leaf: Any) -> Any:
        if isinstance(leaf, tuple) and len(leaf) == 4 and leaf[0] == "tensor":
            return torch.empty_strided(leaf[1], leaf[2], dtype=leaf[3], device="meta")
        return leaf

    def send_object_list(
        objects: Any, dst: int | None = None, group: Any = None, _device: Any = None, group_dst: int | None = None,
        **_: Any,
    ) -> None:  # fmt: skip
        target = place(rank, other(dst, group_dst, group))
        target.write_bytes(pickle.dumps([tree_map(flat, each) for each in objects]))

    def recv_object_list(
        objects: Any, src: int | None = None, group: Any = None, _device: Any = None, group_src: int | None = None,
        **_: Any,
    ) -> int:  # fmt: skip
        source = other(src, group_src, group)
        sent = place(source, rank)
        if not sent.is_file():
            raise RuntimeError(
                f"windtunnel record: rank {rank} waits for an object of rank {source}, which is captured after it; "
                "a pipeline's stage that is given `input_args` and `output_args` sends none"
            )
        found = pickle.loads(sent.read_bytes())  # noqa: S301 - written above, by another rank of this capture
        objects[:] = [tree_map(whole, each, is_leaf=lambda leaf: whole(leaf) is not leaf) for each in found]
        return source

    distributed_c10d.send_object_list = dist.send_object_list = send_object_list
    distributed_c10d.recv_object_list = dist.recv_object_list = recv_object_list


def _data_parallel() -> None:
    """`DistributedDataParallel` in Python: its own, in C++, reads and writes memory, of which there is none.

    As that does, it sums gradients in buckets of 25 MiB, the first of 1 MiB, in the reverse order of parameters, each
    as soon as its last gradient is there, and copies the means back when the backward pass ends. What it sends at its
    start is left out.
    """
    import torch
    import torch.distributed as dist

    first, usual = 1 << 20, 25

    class DistributedDataParallel(torch.nn.Module):
        def __init__(
            self, module: Any, *_: Any, bucket_cap_mb: float | None = None, process_group: Any = None, **__: Any
        ) -> None:
            super().__init__()
            self.module = module
            self.group = process_group
            self.syncs = True
            self.buckets: list[list[Any]] = []
            self.sums: list[tuple[int, Any]] = []
            room = 0
            most = int((bucket_cap_mb if bucket_cap_mb is not None else usual) * (1 << 20))
            for parameter in reversed([each for each in module.parameters() if each.requires_grad]):
                bytes_ = parameter.numel() * parameter.element_size()
                if room <= 0 or self.buckets[-1][0].dtype != parameter.dtype:
                    room = most if self.buckets else min(first, most)
                    self.buckets.append([])
                self.buckets[-1].append(parameter)
                room -= bytes_
                parameter.register_post_accumulate_grad_hook(self._ready(len(self.buckets) - 1))
            self.left = [len(bucket) for bucket in self.buckets]

        def forward(self, *given: Any, **named: Any) -> Any:
            return self.module(*given, **named)

        def no_sync(self) -> Any:
            from contextlib import contextmanager

            @contextmanager
            def apart() -> Any:
                before, self.syncs = self.syncs, False
                try:
                    yield
                finally:
                    self.syncs = before

            return apart()

        def _ready(self, number: int) -> Any:
            def ready(_: Any) -> None:
                if not self.syncs:
                    return
                if not self.sums and self.left == [len(bucket) for bucket in self.buckets]:
                    torch.autograd.Variable._execution_engine.queue_callback(self._copy_back)
                self.left[number] -= 1
                if self.left[number] == 0:
                    flat = torch.cat([parameter.grad.flatten() for parameter in self.buckets[number]])
                    flat.div_(dist.get_world_size(self.group))
                    dist.all_reduce(flat, group=self.group, async_op=True)
                    self.sums.append((number, flat))

            return ready

        def _copy_back(self) -> None:
            for number, flat in self.sums:
                bucket = self.buckets[number]
                parts = flat.split([parameter.numel() for parameter in bucket])
                for parameter, part in zip(bucket, parts, strict=True):
                    parameter.grad.copy_(part.view_as(parameter.grad))
            self.sums.clear()
            self.left = [len(bucket) for bucket in self.buckets]

    torch.nn.parallel.DistributedDataParallel = DistributedDataParallel
    torch.nn.parallel.distributed.DistributedDataParallel = DistributedDataParallel


class _Out:
    """The lines of a rank."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w", encoding="utf-8")
        self.collectives = 0
        self.steps = 0
        # Storage → itself, so that its address stays its own, and the collective that wrote it.
        self.written: dict[int, tuple[Any, int]] = {}

    def line(self, **what: Any) -> None:
        if not self.file.closed:
            self.file.write(json.dumps(what, separators=(",", ":")) + "\n")

    def step(self) -> None:
        self.line(step=self.steps)
        self.steps += 1

    def close(self) -> None:
        if not self.file.closed:
            self.line(end=True)
            self.file.close()


def _mode(out: _Out) -> Any:
    import torch

    try:
        from torch.distributed.tensor import DTensor
    except ImportError:
        # Where it was before 2.5.
        from torch.distributed._tensor import DTensor
    from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
    from torch.utils._pytree import tree_flatten, tree_map

    def tensors_of(what: Any) -> list[Any]:
        return [leaf for leaf in tree_flatten(what)[0] if isinstance(leaf, torch.Tensor)]

    def bytes_of(tensors: list[Any]) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def without(func: Any, args: Any, kwargs: Any, whole: Any = None, ranks: int = 1) -> Any:
        """The call with tensors of one element: process groups know none without memory.

        `whole` is the tensor that holds a part of each of `ranks`: PyTorch 2.15 compares its length with the part's.
        """
        with _disable_current_modes():
            one, all_parts = torch.empty(1), torch.empty(ranks)

            def stand_in(leaf: Any) -> Any:
                if not isinstance(leaf, torch.Tensor):
                    return leaf
                return all_parts if leaf is whole else one

            stand = tree_map(stand_in, (args, kwargs))
            return func(*stand[0], **stand[1])

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            space, _, name = func._schema.name.partition("::")
            plain = name.rstrip("_")
            if space in ("c10d", "_c10d_functional", "c10d_functional") and plain in KINDS:
                return self.collective(space, KINDS[plain], func, args, kwargs or {})
            if any(issubclass(kind, DTensor) for kind in types):
                # It dispatches what this rank does of it, collectives among that, with this mode around it.
                return NotImplemented
            if space == "c10d" and plain in MESSAGES:
                return self.message(MESSAGES[plain], func, args, kwargs or {})
            if space == "c10d" and plain in ROOTED:
                return self.rooted(plain, func, args, kwargs or {})
            result = func(*args, **(kwargs or {}))
            if space in SPACES and name not in FREE:
                self.operator(name, args, kwargs or {}, result)
            return result

        def collective(self, space: str, kind: str, func: Any, args: Any, kwargs: Any) -> Any:
            import torch.distributed as dist
            from torch.distributed import distributed_c10d as c10d

            if space == "c10d":
                members = self.members(args, kwargs)
            else:
                texts = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, str)]
                members = dist.get_process_group_ranks(c10d._resolve_process_group(texts[-1]))
            if space == "c10d":
                # The output comes first.
                whole = {"all_gather": args[0], "reduce_scatter": args[1]}.get(kind) if len(args) > 1 else None
                result = without(func, args, kwargs, whole, dist.get_world_size() if members is None else len(members))
            else:
                result = func(*args, **kwargs)
            inputs = tensors_of(args)
            # The whole buffer: what a rank holds at the larger end.
            if space == "c10d" and kind in ("all_gather", "reduce_scatter", "all_to_all"):
                halves = [bytes_of(tensors_of(part)) for part in args[:2]]
                size = max(halves)
            else:
                size = max(bytes_of(inputs), bytes_of(tensors_of(result)) if space != "c10d" else 0)
            root = (
                next((leaf for leaf in args[2:4] if isinstance(leaf, int)), 0) if kind in ("broadcast", "reduce") else 0
            )
            out.line(
                collective=kind, bytes=0 if kind == "barrier" else size, group=members, root=root,
                number=out.collectives,
                after=self.waits(inputs),
            )  # fmt: skip
            self.wrote(tensors_of(args if space == "c10d" else (args, result)))
            return result

        def members(self, args: Any, kwargs: Any) -> list[int] | None:
            """The ranks of the process group among the arguments."""
            import torch.distributed as dist

            for leaf in tree_flatten((args, kwargs))[0]:
                if isinstance(leaf, torch.ScriptObject):
                    try:
                        found: list[int] = dist.get_process_group_ranks(dist.ProcessGroup.unbox(leaf))
                    except (RuntimeError, TypeError, KeyError):
                        continue
                    return found
            return None

        def wrote(self, tensors: list[Any]) -> None:
            """What the collective or message under way writes; it has its number now."""
            for tensor in tensors:
                storage = tensor.untyped_storage()
                out.written[storage._cdata] = (storage, out.collectives)
            out.collectives += 1

        def message(self, kind: str, func: Any, args: Any, kwargs: Any) -> Any:
            """A send or a receive: tensors, process group, then the other's place in it and a tag."""
            result = without(func, args, kwargs)
            tensors, members = tensors_of(args), self.members(args, kwargs)
            numbers = [leaf for leaf in args[2:] if isinstance(leaf, int)]
            # From anywhere there is a tag alone.
            other, tag = numbers if len(numbers) > 1 else (None, numbers[0] if numbers else 0)
            peer = members[other] if members is not None and other is not None else other
            line = {kind: peer, "bytes": bytes_of(tensors), "group": members, "tag": tag}
            out.line(**line, number=out.collectives, after=self.waits(tensors) if kind == "send" else [])
            self.wrote(tensors if kind == "receive" else [])
            return result

        def rooted(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
            """A scatter or a gather: messages between the root and each other rank."""
            import torch.distributed as dist

            result = without(func, args, kwargs)
            members = self.members(args, kwargs) or []
            # Outputs come first; a part is what one rank has of it.
            given, taken = tensors_of(args[1]), tensors_of(args[0])
            part = bytes_of(taken if name == "scatter" else given)
            root = members[next((leaf for leaf in args[3:] if isinstance(leaf, int)), 0)] if members else 0
            rank = dist.get_rank()
            kind = ROOTED[name][rank != root]
            for other in [each for each in members if each != rank] if rank == root else [root]:
                out.line(
                    **{kind: other}, bytes=part, group=members, tag=ROOTED_TAG, number=out.collectives,
                    after=self.waits(given) if kind == "send" else [],
                )  # fmt: skip
                self.wrote(taken if kind == "receive" else [])
            return result

        def waits(self, tensors: list[Any]) -> list[int]:
            found = {
                out.written[key][1] for tensor in tensors if (key := tensor.untyped_storage()._cdata) in out.written
            }
            return sorted(found)

        def operator(self, name: str, args: Any, kwargs: Any, result: Any) -> None:
            read, made = tensors_of((args, kwargs)), tensors_of(result)
            if not made and not read:
                return
            what: dict[str, Any] = {"op": name, "bytes": bytes_of(read) + bytes_of(made)}
            if name == "all_gather_copy_in":
                # A rank's own part alone is read, and written into the whole.
                what["bytes"] = 2 * bytes_of(tensors_of(args[0]))
            shapes = [tuple(tensor.shape) for tensor in read]
            what["dtype"] = str((read or made)[0].dtype).removeprefix("torch.")
            if name in ("mm", "addmm"):
                (m, k), (_, n) = shapes[-2:]
                what["gemm"] = [1, m, n, k]
            elif name in ("bmm", "baddbmm"):
                (batch, m, k), (_, _, n) = shapes[-2:]
                what["gemm"] = [batch, m, n, k]
            elif "attention" in name and len(shapes) >= 3:
                from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

                backward = "backward" in name
                query, key, value = shapes[1:4] if backward else shapes[:3]
                what["flops"] = (
                    sdpa_backward_flop_count(shapes[0], query, key, value)
                    if backward
                    else sdpa_flop_count(query, key, value)
                )
            out.line(**what, after=self.waits(read))

    return Mode()
