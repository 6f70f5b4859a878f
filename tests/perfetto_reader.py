"""A reader of Perfetto traces, for tests: decodes the protobuf wire format without the writer's help."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

Fields = dict[int, list[Any]]


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> Fields:
    found: Fields = {}
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        value: Any
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value = data[at : at + 8]
            at += 8
        elif kind == 2:
            length, at = varint(data, at)
            assert at + length <= len(data), "a field runs over the end"
            value = data[at : at + length]
            at += length
        else:
            raise AssertionError(f"wire type {kind} is not expected")
        found.setdefault(key >> 3, []).append(value)
    return found


@dataclass
class Slice:
    """A slice with its arguments."""

    name: str
    category: str
    begin_ns: int
    end_ns: int
    arguments: dict[str, Any]
    leaves: list[int] = field(default_factory=list)
    """Arrows that begin here, by number."""
    arrives: list[int] = field(default_factory=list)
    """Arrows that end here."""


@dataclass
class Track:
    """A track: its name, its parent, its (pid, tid) if it is a thread, its events."""

    name: str
    parent: int | None
    pid: int | None = None
    tid: int | None = None
    is_counter: bool = False
    slices: list[Slice] = field(default_factory=list)
    counts: list[tuple[int, float]] = field(default_factory=list)
    open: list[Slice] = field(default_factory=list)


def read(data: bytes) -> dict[int, Track]:
    """Tracks by uuid. Asserts what the Perfetto UI relies on: order, nesting, interned names known before their use."""
    tracks: dict[int, Track] = {}
    names: dict[int, dict[int, str]] = {1: {}, 2: {}, 3: {}}
    for number, packet in enumerate(packets(data)):
        assert packet[10] == [1], "one sequence"
        assert packet[13] == [3 if number == 0 else 2], "the first packet clears the state, all need it"
        for interned in packet.get(12, []):
            for kind, entries in fields(interned).items():
                for entry in entries:
                    parts = fields(entry)
                    names[kind][parts[1][0]] = parts[2][0].decode()
        if 60 in packet:
            uuid, track = descriptor(fields(packet[60][0]))
            assert uuid not in tracks
            assert track.parent is None or track.parent in tracks
            tracks[uuid] = track
        if 11 in packet:
            event(tracks, names, packet[8][0], fields(packet[11][0]))
    assert not any(track.open for track in tracks.values()), "every slice ends"
    return tracks


def packets(data: bytes) -> Iterator[Fields]:
    top = fields(data)
    assert list(top) == [1]
    for packet in top[1]:
        yield fields(packet)


def descriptor(parts: Fields) -> tuple[int, Track]:
    parent = parts.get(5, [None])[0]
    if 3 in parts:
        process = fields(parts[3][0])
        return parts[1][0], Track(process[6][0].decode(), parent, pid=process[1][0])
    if 4 in parts:
        thread = fields(parts[4][0])
        return parts[1][0], Track(thread[5][0].decode(), parent, pid=thread[1][0], tid=thread[2][0])
    return parts[1][0], Track(parts[2][0].decode(), parent, is_counter=8 in parts)


def event(tracks: dict[int, Track], names: dict[int, dict[int, str]], at_ns: int, parts: Fields) -> None:
    track = tracks[parts[11][0]]
    match parts[9][0]:
        case 1:
            arguments = {}
            for note in parts.get(4, []):
                value = fields(note)
                arguments[names[3][value[1][0]]] = value[6][0].decode() if 6 in value else value[3][0]
            assert not track.slices or at_ns >= track.slices[-1].end_ns, "slices follow each other"
            begun = Slice(names[2][parts[10][0]], names[1][parts[3][0]], at_ns, -1, arguments)
            begun.leaves += [int.from_bytes(number, "little") for number in parts.get(47, [])]
            track.open.append(begun)
        case 2:
            done = track.open.pop()
            done.end_ns = at_ns
            done.arrives += [int.from_bytes(number, "little") for number in parts.get(48, [])]
            assert done.end_ns >= done.begin_ns
            track.slices.append(done)
        case 4:
            assert track.is_counter
            assert not track.counts or at_ns >= track.counts[-1][0]
            track.counts.append((at_ns, struct.unpack("<d", parts[44][0])[0]))
        case kind:
            raise AssertionError(f"event type {kind} is not expected")
