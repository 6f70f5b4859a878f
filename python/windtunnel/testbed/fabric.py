"""The testbed's network: namespaces for hosts, leaves and spines, veth pairs between them, a token bucket on each end.

Leaves spread flows over spines by the kernel's own hash of the five-tuple, and are asked with `ip route get` which way
a flow takes. (`fib_multipath_hash_policy` is 3 with fields 55; 1 would take the hash that a packet brings along from
its socket, which is drawn.) A token bucket sends at the link's rate, counts Ethernet headers, and drops what its queue
cannot hold.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.engine import InputError
from windtunnel.testbed.shell import batch, call, demand

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OWNER = re.compile(r"wtb(\d+)(?:-t(\d+))?-")
"""The process of a testbed and when that began: numbers of processes are used again."""
OURS = re.compile(rf"^{OWNER.pattern}(?:h\d+-\d+|l\d+|s\d+|probe)$")
MTU = 1514
"""Bytes of a full packet as a token bucket counts it: 1,500 and an Ethernet header."""
BURST = 2 * MTU
"""Bytes that a token bucket holds at least."""
ACKNOWLEDGEMENTS = (52, 64, 72, 80)
"""Bytes of an IPv4 packet that only acknowledges: with time stamps, and with up to three blocks that arrived (SACK)."""
SYSTEM = (
    "net.ipv4.ip_forward=1", "net.ipv4.fib_multipath_hash_policy=3", "net.ipv4.fib_multipath_hash_fields=55",
    "net.ipv4.conf.all.rp_filter=0",
    "net.ipv4.conf.default.rp_filter=0", "net.ipv4.tcp_no_metrics_save=1", "net.ipv6.conf.all.disable_ipv6=1",
)  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """A leaf–spine: sizes, the rate of every link in bit/s, and what a port's queue holds."""

    leaves: int = 4
    hosts: int = 2
    """Hosts of a leaf."""
    spines: int = 2
    rate: int = 20_000_000
    queue: int = 150_000
    acknowledgements: str = "first"
    """Whether they go `first` at every port, as in the packet model, by the type of service of sockets that send
    nothing else; `short`: first by their length, where data goes both ways on one connection; or wait `among` data."""

    def check(self) -> None:
        """Raises `InputError` for what is no testbed."""
        if not 2 <= self.leaves <= 8 or not 1 <= self.hosts <= 8 or not 1 <= self.spines <= 8:
            raise InputError("expected 2 to 8 leaves, 1 to 8 hosts a leaf and 1 to 8 spines")
        if not 1_000_000 <= self.rate <= 1_000_000_000:
            raise InputError(f"expected a rate from 1 to 1000 Mbps, found {self.rate / 1e6:g} Mbps")
        if self.acknowledgements not in {"first", "short", "among"}:
            raise InputError(
                f"expected acknowledgements `first`, `short` or `among` data, found `{self.acknowledgements}`"
            )
        if self.queue < 2 * MTU:
            raise InputError(f"expected a queue of at least two packets ({2 * MTU} B), found {self.queue} B")


@dataclass(frozen=True)
class Fabric:
    """A network that is up. Hosts are numbered leaf by leaf."""

    shape: Shape
    prefix: str

    def host(self, number: int) -> str:
        """The namespace of a host."""
        return f"{self.prefix}-h{number // self.shape.hosts}-{number % self.shape.hosts}"

    def leaf(self, number: int) -> str:
        """The leaf of a host, as a number."""
        return f"{self.prefix}-l{number}"

    def address(self, number: int) -> str:
        """The address of a host."""
        return f"10.77.{number // self.shape.hosts}.{10 + number % self.shape.hosts}"

    def spines(self, ways: Sequence[tuple[int, int, int, int]]) -> list[int | None]:
        """The spine that each flow (source, destination, their ports) takes; None inside a leaf."""
        found: list[int | None] = []
        for source, destination, out, into in ways:
            leaf = source // self.shape.hosts
            if leaf == destination // self.shape.hosts:
                found.append(None)
                continue
            told = call(
                "ip", "-n", self.leaf(leaf), "route", "get", self.address(destination), "from", self.address(source),
                "iif", f"d{source % self.shape.hosts}", "ipproto", "tcp", "sport", str(out), "dport", str(into),
            )  # fmt: skip
            port = re.search(r"\bdev u(\d+)\b", told)
            found.append(int(port[1]) if port else None)
        return found


def congestions(wanted: Sequence[str]) -> None:
    """Raises `InputError` where the kernel has no congestion control of a name."""
    known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text(encoding="ascii").split()
    for name in wanted:
        if name not in known:
            raise InputError(f"this kernel has no congestion control `{name}`\n\nhint: it has {', '.join(known)}")


@contextmanager
def built(shape: Shape, congestion: str | None = None) -> Iterator[Fabric]:
    """A network that is taken away at the end, whatever happens in between.

    Programs that do not choose their TCP have `congestion`; else what this machine's are given, which may be any.
    """
    shape.check()
    demand()
    fabric = Fabric(shape, f"wtb{os.getpid()}-t{begun(os.getpid())}")
    try:
        _build(fabric, congestion)
        yield fabric
    finally:
        remove(fabric.prefix)


def _build(fabric: Fabric, congestion: str | None) -> None:
    shape, p = fabric.shape, fabric.prefix
    packets = max(1, shape.queue // MTU)
    leaves = [f"{p}-l{leaf}" for leaf in range(shape.leaves)]
    spines = [f"{p}-s{spine}" for spine in range(shape.spines)]
    hosts = [fabric.host(number) for number in range(shape.leaves * shape.hosts)]
    batch("ip", [f"netns add {space}" for space in [*hosts, *leaves, *spines]])
    for space in [*hosts, *leaves, *spines]:
        call("ip", "netns", "exec", space, "sysctl", "-qw", *SYSTEM)
    links = [
        f"link add e0 netns {fabric.host(number)} type veth peer name d{number % shape.hosts} netns "
        f"{leaves[number // shape.hosts]}"
        for number in range(len(hosts))
    ]
    links += [
        f"link add u{s} netns {leaf} type veth peer name p{at} netns {spine}"
        for at, leaf in enumerate(leaves)
        for s, spine in enumerate(spines)
    ]
    batch("ip", links)
    for number, space in enumerate(hosts):
        gateway = f"10.77.{number // shape.hosts}.1"
        up = ["link set lo up", f"link set e0 txqueuelen {packets} up"]
        if shape.acknowledgements == "short":
            # Else `htb` gets several packets as one, which the bucket above it passes or drops together.
            up.append("link set e0 gso_max_segs 1")
        up += [f"addr add {fabric.address(number)}/32 dev e0"]
        # By the route, since a namespace may not set the default to what is not everybody's.
        chosen = "" if congestion is None else f" congctl {congestion}"
        batch("ip", [*up, f"route add {gateway}/32 dev e0", f"route add default via {gateway}{chosen}"], space)
        batch("tc", _bucket("e0", shape), space)
    for at, space in enumerate(leaves):
        commands = ["link set lo up", f"addr add 10.77.{at}.1/32 dev lo"]
        for host in range(shape.hosts):
            commands += [
                f"link set d{host} txqueuelen {packets} up",
                f"route add 10.77.{at}.{10 + host}/32 dev d{host} src 10.77.{at}.1",
            ]
        for s in range(shape.spines):
            commands += [f"link set u{s} txqueuelen {packets} up", f"addr add 10.78.{at}.{4 * s + 1}/30 dev u{s}"]
        for other in range(shape.leaves):
            if other != at:
                hops = " ".join(f"nexthop via 10.78.{at}.{4 * s + 2}" for s in range(shape.spines))
                commands.append(f"route add 10.77.{other}.0/24 {hops}")
        batch("ip", commands, space)
        ports = [*(f"d{host}" for host in range(shape.hosts)), *(f"u{s}" for s in range(shape.spines))]
        batch("tc", [line for port in ports for line in _bucket(port, shape)], space)
    for s, space in enumerate(spines):
        commands = ["link set lo up"]
        for at in range(shape.leaves):
            commands += [f"link set p{at} txqueuelen {packets} up", f"addr add 10.78.{at}.{4 * s + 2}/30 dev p{at}"]
            commands.append(f"route add 10.77.{at}.0/24 via 10.78.{at}.{4 * s + 1}")
        batch("ip", commands, space)
        batch("tc", [line for at in range(shape.leaves) for line in _bucket(f"p{at}", shape)], space)


def _bucket(port: str, shape: Shape) -> list[str]:
    """The commands of `tc` for a port: a token bucket with one queue, or two of which acknowledgements have the first.

    `pfifo_fast` goes by the type of service that hosts give their sockets (`sender`), and counts packets. By length go
    two classes that nothing but the bucket above them holds back.
    """
    burst = max(BURST, shape.rate // 8 // 4000)
    found = [f"qdisc add dev {port} root handle 1: tbf rate {shape.rate}bit burst {burst} limit {shape.queue}"]
    if shape.acknowledgements == "first":
        found.append(f"qdisc add dev {port} parent 1:1 handle 2: pfifo_fast")
    if shape.acknowledgements == "short":
        found.append(f"qdisc add dev {port} parent 1:1 handle 2: htb default 20")
        for number, place in ((10, 0), (20, 1)):
            found += [
                f"class add dev {port} parent 2: classid 2:{number} htb rate 10gbit prio {place} quantum {MTU}",
                f"qdisc add dev {port} parent 2:{number} handle {number}: pfifo limit {max(1, shape.queue // MTU)}",
            ]
        found += [
            f"filter add dev {port} parent 2: protocol ip u32 match u16 {size} 0xffff at 2 flowid 2:10"
            for size in ACKNOWLEDGEMENTS
        ]
    return found


def begun(process: int) -> int | None:
    """When a process began, in the kernel's ticks since it was started; None where there is none of this number."""
    try:
        told = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The program's name comes second, in brackets, and may hold anything.
    return int(told.rpartition(")")[2].split()[19])


def alive(name: str) -> bool:
    """Whether the process that a name of a testbed says is there, and is no other one of the same number."""
    owner = OWNER.search(name)
    if owner is None:
        return False
    found = begun(int(owner[1]))
    return found is not None and owner[2] in {None, str(found)}


def spaces() -> list[str]:
    """Namespaces of testbeds that are there."""
    names = [line.split()[0] for line in call("ip", "netns", "list").splitlines() if line.strip()]
    return [name for name in names if OURS.match(name)]


def remove(prefix: str | None = None, *, living: bool = False) -> list[str]:
    """Takes namespaces away with the programs in them, and returns their names.

    Those of one testbed (`prefix`), or of all whose process has ended; with `living` of all.
    """
    found = [
        name
        for name in spaces()
        if (name.startswith(f"{prefix}-") if prefix is not None else living or not alive(name))
    ]
    for name in found:
        for pid in call("ip", "netns", "pids", name, check=False).split():
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(pid), signal.SIGKILL)
        # Its veth pairs go with it.
        call("ip", "netns", "del", name, check=False)
    return found
