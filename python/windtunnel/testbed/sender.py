"""The program of a host of the testbed: answers what is sent to it, and sends flows at their times.

It stands alone (no import of the package), so that it starts quickly in a namespace. The plan is the first line of its
standard input, as JSON: `port`, `congestion`, and `flows` with `id`, `to`, `from_port`, `bytes`, `start`. At the second
line it connects; the third holds the beginning by the monotonic clock, after which a flow starts by so many seconds. A
flow's completion time is from its start to the arrival of the receiver's answer, one byte that it sends once it has
everything.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time

HEAD = struct.Struct("!Q")
CHUNK = bytes(1 << 16)


def answer(connection: socket.socket) -> None:
    """Takes in what one connection brings, and answers."""
    with connection:
        head = b""
        while len(head) < HEAD.size:
            part = connection.recv(HEAD.size - len(head))
            if not part:
                return
            head += part
        left = HEAD.unpack(head)[0] - HEAD.size
        while left > 0:
            part = connection.recv(min(left, 1 << 18))
            if not part:
                return
            left -= len(part)
        connection.sendall(b"x")
        connection.recv(1)


def serve(listener: socket.socket) -> None:
    """Accepts for ever."""
    while True:
        connection, _ = listener.accept()
        # What it sends are acknowledgements: low delay, which goes first where a port has bands.
        connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x10)
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def send(connection: socket.socket, flow: dict[str, float], begin: float, found: list[dict[str, float]]) -> None:
    """Sends a flow at its time; its bytes include the head of eight."""
    due = begin + flow["start"]
    time.sleep(max(0.0, due - time.monotonic()))
    started = time.monotonic()
    left = int(flow["bytes"])
    connection.sendall(HEAD.pack(left))
    left -= HEAD.size
    while left > 0:
        left -= connection.send(CHUNK[: min(left, len(CHUNK))])
    connection.recv(1)
    found.append({"id": flow["id"], "fct": time.monotonic() - started, "late": started - due})


def main() -> None:
    """Reads the plan, connects, waits for the beginning, sends, and prints what it found as a line of JSON."""
    plan = json.loads(sys.stdin.readline())
    listener = socket.create_server(("0.0.0.0", plan["port"]), backlog=64)  # noqa: S104 - of a namespace of its own
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    print("listening", flush=True)
    sys.stdin.readline()
    connections = []
    for flow in plan["flows"]:
        connection = socket.socket()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, plan["congestion"].encode())
        connection.bind(("", flow["from_port"]))
        connection.settimeout(30)
        connection.connect((flow["to"], plan["port"]))
        connection.settimeout(flow.get("patience", 120))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections.append(connection)
    print("connected", flush=True)
    begin = float(sys.stdin.readline())
    found: list[dict[str, float]] = []
    threads = [
        threading.Thread(target=send, args=(connection, flow, begin, found), daemon=True)
        for connection, flow in zip(connections, plan["flows"], strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(found), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
