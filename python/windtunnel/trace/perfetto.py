"""A writer of Perfetto's protobuf: tracks, slices with arguments, counters.

A trace is a sequence of `TracePacket`s (field 1 of `Trace`). Names, categories and argument names are interned: the
first packet that uses one defines it. Arrows (`flow_ids`, `terminating_flow_ids`) join slices of any two tracks. Fields
and their numbers are those of Perfetto's public `.proto` files (`protos/perfetto/trace/trace_packet.proto`,
`track_event/track_event.proto`, `track_event/track_descriptor.proto`, `interned_data/interned_data.proto`). Timestamps
are whole nanoseconds.

Life cycle: name the tracks, then give the events of each in the order of time; `data` is the trace.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_DOUBLE = struct.Struct("<d").pack
_PACKET = 0x0A  # Trace.packet, length-delimited
_SEQUENCE = 1
_STATE_CLEARED, _NEEDS_STATE = 1, 2
_BEGIN, _END, _COUNTER = 1, 2, 4


class _Last(dict[int, bytes]):
    """Numbers below 2^14 in base 128, low digits first, each worked out when it is first asked for."""

    def __missing__(self, value: int) -> bytes:
        high = value >> 7
        found = self[value] = bytes((value & 0x7F | 0x80, high)) if high else bytes((value,))
        return found


class _NotLast(dict[int, bytes]):
    """The same where more digits follow."""

    def __missing__(self, value: int) -> bytes:
        found = self[value] = bytes((value & 0x7F | 0x80, value >> 7 | 0x80))
        return found


_LAST, _NOT_LAST = _Last(), _NotLast()


def varint(value: int) -> bytes:
    """An unsigned integer in base 128, low digits first."""
    if value < 0x4000:
        return _LAST[value]
    if value < 0x1000_0000:
        return _NOT_LAST[value & 0x3FFF] + _LAST[value >> 14]
    return _NOT_LAST[value & 0x3FFF] + varint(value >> 14)


def number(field: int, value: int) -> bytes:
    """An integer field."""
    return varint(field << 3) + varint(value)


def chunk(field: int, data: bytes | str) -> bytes:
    """A string, bytes or message field."""
    raw = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def double(field: int, value: float) -> bytes:
    """A double field."""
    return varint(field << 3 | 1) + _DOUBLE(value)


def fixed(field: int, value: int) -> bytes:
    """A field of eight bytes."""
    return varint(field << 3 | 1) + struct.pack("<Q", value)


_NEXT = number(10, _SEQUENCE) + number(13, _NEEDS_STATE)
_FIRST = number(10, _SEQUENCE) + number(13, _NEEDS_STATE | _STATE_CLEARED)
"""Ends of packets: the first one clears what a reader knows."""


# Tags of what each event has.
_AT, _EVENT, _NOTE = varint(8 << 3), varint(11 << 3 | 2), varint(4 << 3 | 2)
_NAME_OF_NOTE, _WHOLE_OF_NOTE = varint(1 << 3), varint(3 << 3)


class Flow(NamedTuple):
    """An end of an arrow: it leaves the begin of a slice, and arrives at the end of another, which is never earlier."""

    number: int
    leaves: bool


class _Interned:
    """Strings of one kind; each is defined in the packet that first uses it."""

    def __init__(self, field: int) -> None:
        self._field = field
        self._ids: dict[str, int] = {}

    def use(self, name: str, fresh: bytearray) -> int:
        known = self._ids.get(name)
        if known is None:
            known = self._ids[name] = len(self._ids) + 1
            fresh += chunk(self._field, number(1, known) + chunk(2, name))
        return known


class TraceWriter:
    """Builds a trace in memory."""

    def __init__(self) -> None:
        self._out = bytearray()
        self._categories = _Interned(1)
        self._names = _Interned(2)
        self._arguments = _Interned(3)
        self._tracks = 0
        self._heads: dict[int, bytes] = {}
        self._ends: dict[int, bytes] = {}
        self._begins: dict[tuple[int, str, str], bytes] = {}
        self._cleared = False

    def process(self, pid: int, name: str, order: int) -> int:
        """Names a process, shown at place `order`, and returns its track."""
        process = number(1, pid) + chunk(6, name)
        return self._describe(chunk(3, process) + number(11, 3) + number(12, order))

    def thread(self, pid: int, tid: int, name: str, parent: int) -> int:
        """Names a thread of process track `parent` and returns its track."""
        thread = number(1, pid) + number(2, tid) + chunk(5, name)
        return self._describe(number(5, parent) + chunk(4, thread))

    def track(self, name: str, parent: int) -> int:
        """Names a track below `parent` and returns it."""
        return self._describe(number(5, parent) + chunk(2, name))

    def counter(self, name: str, unit: str, parent: int) -> int:
        """Names a counter below `parent` and returns its track."""
        return self._describe(number(5, parent) + chunk(2, name) + chunk(8, chunk(6, unit)))

    def slice(
        self,
        track: int,
        begin_ns: int,
        end_ns: int,
        name: str,
        category: str,
        arguments: dict[str, int | str],
        flow: Flow | None = None,
    ) -> None:
        """A slice; those of a track must follow each other. `flow` is the end of an arrow that is fixed to it."""
        fresh = bytearray()
        kind = (track, name, category)
        event = self._begins.get(kind)
        if event is None:
            event = number(9, _BEGIN) + number(11, track)
            event += number(3, self._categories.use(category, fresh)) + number(10, self._names.use(name, fresh))
            self._begins[kind] = event
        for key, value in arguments.items():
            note = _NAME_OF_NOTE + varint(self._arguments.use(key, fresh))
            note += chunk(6, value) if isinstance(value, str) else _WHOLE_OF_NOTE + varint(value)
            event += _NOTE + varint(len(note)) + note
        end = self._ends.get(track)
        if end is None:
            end = self._ends[track] = number(9, _END) + number(11, track)
        if flow is not None and flow.leaves:
            event += fixed(47, flow.number)
        elif flow is not None:
            end += fixed(48, flow.number)
        self._event(begin_ns, event, fresh)
        self._event(end_ns, end, b"")

    def count(self, track: int, at_ns: int, value: float) -> None:
        """A counter's value from `at_ns` on."""
        head = self._heads.get(track)
        if head is None:
            head = self._heads[track] = number(9, _COUNTER) + number(11, track)
        self._event(at_ns, head + double(44, value), b"")

    @property
    def data(self) -> bytes:
        """The trace."""
        return bytes(self._out)

    def _describe(self, fields: bytes) -> int:
        self._tracks += 1
        self._packet(chunk(60, number(1, self._tracks) + fields))
        return self._tracks

    def _event(self, at_ns: int, event: bytes, interned: bytes | bytearray) -> None:
        body = _AT + varint(at_ns) + _EVENT + varint(len(event)) + event
        self._packet(body + chunk(12, bytes(interned)) if interned else body)

    def _packet(self, body: bytes) -> None:
        end = _NEXT if self._cleared else _FIRST
        self._cleared = True
        self._out.append(_PACKET)
        self._out += varint(len(body) + len(end))
        self._out += body
        self._out += end
