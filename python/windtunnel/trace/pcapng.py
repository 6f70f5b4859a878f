"""From the table `packets` to a pcapng file, for Wireshark and tcpdump.

Packets are simulated and have no bytes, so each is shown as what it stands for: Ethernet, IPv4, UDP to port 4791 and
the base header of RoCEv2, whose fields are those of the table. The rest of it is cut off, with its length kept.

| field | is |
|---|---|
| interface | the link, by name |
| time | of arrival at the far end of the link, in ps (in ns where 64 bits of ps do not hold it) |
| addresses | 10.x.y.z, of the NIC's number counted through the hosts, from 1 on |
| ECN | ECT(0), or CE of a marked data packet |
| UDP source port | 49152 and the path number, modulo 16384 |
| queue pair, PSN | number of the queue pair, and the sequence number, modulo 2^24 |
| opcode | RDMA write middle for data, acknowledge, CNP; manufacturer's own for all others |
| comment | the kind, and `dropped` or `trimmed` where the link's port did that |
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from windtunnel.engine import InputError
from windtunnel.results.folder import write_beside
from windtunnel.results.rows import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel.results import Result

SECTION, INTERFACE, PACKET = 0x0A0D0D0A, 1, 6
"""Types of blocks (draft-ietf-opsawg-pcapng)."""

COMMENT, NAME, RESOLUTION = 1, 2, 9
"""Codes of options: of a packet, and of an interface."""

ETHERNET = 1
ROCE = 4791
HEADERS = 14 + 20 + 8 + 12
ACKNOWLEDGED = 4
"""Bytes of the header of acknowledgements (AETH)."""

OPCODES = {"data": 0x07, "ack": 0x11, "nack": 0x11, "cnp": 0x81}
OTHERS = 0xC0
NOT_ACKNOWLEDGED = 0x60
"""Syndrome of a NAK: the packet sequence is wrong."""

UNKNOWN = 0xFFFFFF
"""Number of a NIC that the table does not name, of a packet that is summed up in switches."""

_NIC = re.compile(r"host(\d+)/nic(\d+)")


def write_pcapng(result: Result, path: Path) -> Path:
    """Writes the packets that `result` captured to `path`, and returns it.

    Raises:
        InputError: the run captured none.

    """
    if "packets" not in result.tables:
        raise InputError(
            f"the run captured no packets: `{result.path}`\n\n"
            "hint: `results: {packets: {pairs: [{from: host0/nic0, to: host1/nic0}]}}` at packet fidelity"
        )
    rows = rows_of(result, "packets")
    origins, times = rows["origin_s"], rows["time_ps"]
    instants = [origin * 10**12 + time for origin, time in zip(origins, times, strict=True)]
    digits = 12 if max(instants, default=0) < 1 << 64 else 9
    numbers = _numbers([*rows["source"], *rows["destination"]])
    interfaces: dict[str, int] = {}
    for name in rows["name"]:
        interfaces.setdefault(name, len(interfaces))
    blocks = [_block(SECTION, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))]
    for name in interfaces:
        options = _option(NAME, name.encode()) + _option(RESOLUTION, bytes([digits])) + _option(0, b"")
        blocks.append(_block(INTERFACE, struct.pack("<HHI", ETHERNET, 0, HEADERS + ACKNOWLEDGED) + options))
    columns = ("name", "fate", "kind", "queue_pair", "source", "destination", "sequence", "bytes", "path", "marked")
    for at, (name, fate, kind, pair, source, destination, sequence, size, path_number, marked) in zip(
        instants, rows.each(*columns), strict=True
    ):
        ends = (numbers.get(source, UNKNOWN), numbers.get(destination, UNKNOWN))
        frame = _frame(kind, ends, pair or 0, sequence, size, path_number, marked=bool(marked))
        said = kind if fate == "passed" else f"{kind} {fate}"
        ticks = at // 10 ** (12 - digits)
        head = struct.pack(
            "<IIIII", interfaces[name], ticks >> 32, ticks & 0xFFFFFFFF, len(frame), max(size, len(frame))
        )
        options = _option(COMMENT, said.encode()) + _option(0, b"")
        blocks.append(_block(PACKET, head + _padded(frame) + options))
    write_beside(path, b"".join(blocks))
    return path


def _numbers(names: list[str | None]) -> dict[str | None, int]:
    """The number of each NIC, from 1 on."""
    found = {name: tuple(map(int, match.groups())) for name in set(names) if name and (match := _NIC.fullmatch(name))}
    each = 1 + max((nic for _, nic in found.values()), default=0)
    return {name: 1 + host * each + nic for name, (host, nic) in found.items()}


def _frame(kind: str, ends: tuple[int, int], pair: int, sequence: int, size: int, path: int, *, marked: bool) -> bytes:
    """What a packet looks like on the wire, without its payload."""
    source, destination = ends
    answers = kind in ("ack", "nack")
    shown = max(size, HEADERS + ACKNOWLEDGED * answers)
    ethernet = b"\x02\x00" + destination.to_bytes(4, "big") + b"\x02\x00" + source.to_bytes(4, "big") + b"\x08\x00"
    addresses = bytes([10]) + source.to_bytes(3, "big") + bytes([10]) + destination.to_bytes(3, "big")
    ip = struct.pack(">BBHHHBBH", 0x45, 3 if marked else 2, shown - 14, 0, 0x4000, 64, 17, 0) + addresses
    ip = ip[:10] + struct.pack(">H", _checksum(ip)) + ip[12:]
    udp = struct.pack(">HHHH", 49152 + path % 16384, ROCE, shown - 34, 0)
    base = struct.pack(">BBHII", OPCODES.get(kind, OTHERS), 0, 0xFFFF, pair & 0xFFFFFF, sequence & 0xFFFFFF)
    if answers:
        base += struct.pack(">I", (NOT_ACKNOWLEDGED if kind == "nack" else 0) << 24)
    return ethernet + ip + udp + base


def _checksum(header: bytes) -> int:
    """The Internet's, of a header whose own is zero (RFC 1071)."""
    total: int = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)


def _block(kind: int, body: bytes) -> bytes:
    length = 12 + len(body)
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)
