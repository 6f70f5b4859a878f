"""Queue pairs over time and captured packets: the tables under every transport, and what Wireshark would read."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import windtunnel
from windtunnel.engine import InputError
from windtunnel.report.pairs import NEEDED, queue_pairs
from windtunnel.results.rows import Rows
from windtunnel.trace.pcapng import write_pcapng

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel import Result

pytestmark = pytest.mark.engine

GBPS = 100
BYTES = 400_000
TRANSPORTS = (
    "none", "dcqcn", "dctcp", "swift", "newreno", "cubic", "bbr", "mprdma", "uec", "rccc", "hpcc", "ndp", "eqds", "mrc",
    "homa", "sird", "expresspass", "phost", "pfabric", "dcpim",
)  # fmt: skip
PAIRS = [{"from": "host1/nic0", "to": "host0/nic0"}, {"from": "host2/nic0", "to": "host0/nic0"}]


def scenario(transport: str, results: dict[str, Any], **network: object) -> dict[str, Any]:
    """Two flows into one port."""
    needs: dict[str, dict[str, Any]] = {"hpcc": {"telemetry": True}, "ndp": {"trimming": {"queue": "100 KB"}}}
    needs["mrc"] = {"load_balancer": "source"}
    return {
        "windtunnel": 1,
        "name": "two-flows",
        "seed": 1,
        "fidelity": "packet",
        "topology": {
            "shape": "clos",
            "hosts": 3,
            "tiers": [{"ports_down": 3, "rate": f"{GBPS} Gbps", "length": "10 m"}],
            "host": {"gpus": 1, "nics": 1},
        },
        "network": {"transport": transport, **needs.get(transport, {}), **network},
        "jobs": [{"name": "two", "workload": {"flows": {"pattern": "incast", "bytes": f"{BYTES} B"}}}],
        "results": {"ideal": False, **results},
    }


def over_time(every: str = "1 us") -> dict[str, Any]:
    return {"queue_pairs": {"every": every, "pairs": PAIRS}}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_queue_pair_keeps_to_its_window_and_its_line(transport: str, tmp_path: Path) -> None:
    result = windtunnel.run(scenario(transport, over_time()), out=tmp_path / "run")
    rows = result.scan("queue_pairs").collect()
    # The last look is up to a period before the end, and a port of 100 Gbps carries 12,500 B in it.
    ends = rows.group_by("source").agg(pl.col("delivered_bytes").max())["delivered_bytes"].to_list()
    assert len(ends) == 2
    assert all(BYTES - 2 * 12_500 <= end <= BYTES for end in ends)
    assert (rows["sent_bytes"] >= rows["in_flight_bytes"]).all()
    assert (
        rows.sort("queue_pair", "time_ps")
        .select(
            (pl.col("sent_bytes").diff().over("queue_pair") >= 0).all()
            & (pl.col("delivered_bytes").diff().over("queue_pair") >= 0).all()
        )
        .item()
    )
    # One packet may always be on its way, and what a window that falls had let go.
    windows = rows.filter(pl.col("window_bytes").is_not_null())
    most = windows.select(pl.col("window_bytes").cum_max().over("queue_pair"))["window_bytes"]
    assert (windows["in_flight_bytes"] <= most + 9000).all()
    assert (rows["rate_bps"].drop_nulls() <= GBPS * 1e9).all()
    # 10 m there and back twice over two cables, and the time of a packet on two links.
    least_ps = 2 * 10 * 5_000 + 2 * 4150 * 8 * 1000 // GBPS
    assert (rows["one_way_ps"].drop_nulls() >= least_ps).all()
    assert (rows["rtt_ps"].drop_nulls() >= least_ps).all()
    assert rows["one_way_ps"].drop_nulls().len() > 0


SMALL = {"buffers": [{"size": "60 KB"}], "ecn": {"kmin": "1 GB", "kmax": "2 GB"}}
"""A port that two senders overfill, and that marks nothing."""


@pytest.mark.parametrize(
    ("transport", "network"),
    [("dctcp", {}), ("newreno", SMALL), ("ndp", {"load_balancer": "spray"}), ("uec", {}), ("homa", {})],
)
def test_tables_are_the_same_for_any_number_of_threads(transport: str, network: dict[str, Any], tmp_path: Path) -> None:
    asked = over_time() | {"packets": {"pairs": PAIRS, "limit": 10_000_000}}
    whole = scenario(transport, asked, **network)
    whole["topology"] |= {
        "hosts": 8,
        "tiers": [{"ports_down": 2, "rate": "100 Gbps", "length": "10 m"}, {"ports_down": 4, "rate": "100 Gbps"}],
        "host": {"gpus": 1, "nics": 1, "nic": "ConnectX-7"},
    }
    whole["jobs"][0]["iterations"] = 4
    whole["jobs"][0]["workload"]["flows"]["bytes"] = "60 KB"
    runs = [windtunnel.run(whole, out=tmp_path / f"run{threads}", threads=threads) for threads in (1, 2, 4)]
    for table in ("queue_pairs", "packets"):
        one, *others = (run.scan(table).collect() for run in runs)
        assert one.height > 50
        assert all(one.equals(other) for other in others)


def test_bytes_of_captured_packets_are_those_of_the_link(tmp_path: Path) -> None:
    asked = {"packets": {"on": "leaf0 -> host0/nic0"}}
    result = windtunnel.run(scenario("dctcp", asked), out=tmp_path / "run")
    rows = result.scan("packets").collect()
    data = rows.filter((pl.col("kind") == "data") & (pl.col("fate") == "passed"))
    # Each packet has 66 bytes of headers, and a payload of 4,084 but for the last.
    assert int(data["bytes"].sum()) == 2 * (BYTES + 66 * -(-BYTES // 4084))
    links = result.scan("links").collect()
    (carried,) = links.filter(pl.col("name") == "leaf0 -> host0/nic0")["bytes"]
    assert int(rows.filter(pl.col("fate") == "passed")["bytes"].sum()) == carried
    assert int(rows["marked"].sum()) > 0


def test_a_limit_is_told(tmp_path: Path) -> None:
    asked = {"packets": {"on": "leaf0 -> host0/nic0", "limit": 50}}
    result = windtunnel.run(scenario("dctcp", asked), out=tmp_path / "run")
    assert result.scan("packets").collect().height == 50
    (warning,) = (line for line in result.summary["warnings"] if line.startswith("results.packets: the limit"))
    assert "packets more were not captured" in warning


def blocks(data: bytes) -> list[tuple[int, bytes]]:
    """Blocks of a pcapng file: types and bodies, with their lengths checked at both ends."""
    found, at = [], 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        assert length % 4 == 0
        assert struct.unpack_from("<I", data, at + length - 4) == (length,)
        found.append((kind, data[at + 8 : at + length - 4]))
        at += length
    assert at == len(data)
    return found


def read_packets(path: Path) -> list[dict[str, Any]]:
    """What a program for captures would show of each packet."""
    (section, head), *rest = blocks(path.read_bytes())
    assert section == 0x0A0D0D0A
    assert struct.unpack_from("<IHH", head) == (0x1A2B3C4D, 1, 0)
    interfaces, packets = 0, []
    for kind, body in rest:
        if kind == 1:
            assert struct.unpack_from("<H", body) == (1,)
            interfaces += 1
            continue
        assert kind == 6
        interface, high, low, captured, length = struct.unpack_from("<IIIII", body)
        frame = body[20 : 20 + captured]
        assert interface < interfaces
        assert captured <= length
        assert frame[12:14] == b"\x08\x00"
        ip = frame[14:34]
        assert sum(struct.unpack(">10H", ip)) % 0xFFFF == 0, "RFC 1071: with its checksum it is all ones"
        assert struct.unpack_from(">H", ip, 2) == (length - 14,)
        source_port, port, size = struct.unpack_from(">HHH", frame, 34)
        assert (port, size) == (4791, length - 34)
        assert source_port >= 49152
        packets.append(
            {
                "time_ps": (high << 32) + low,
                "bytes": length,
                "marked": ip[1] & 3 == 3,
                "ends": (ip[12:16], ip[16:20]),
                "opcode": frame[42],
                "sequence": int.from_bytes(frame[51:54], "big"),
                "comment": body[20 + -(-captured // 4) * 4 :].rstrip(b"\0"),
            }
        )
    return packets


def test_wireshark_reads_what_the_table_has(tmp_path: Path) -> None:
    asked = {"packets": {"pairs": PAIRS[:1]}}
    # A buffer that drops: 60 KB for a port that two fill.
    result: Result = windtunnel.run(
        scenario("newreno", asked, buffers=[{"size": "60 KB"}], ecn={"kmin": "1 GB", "kmax": "2 GB"}),
        out=tmp_path / "run",
    )
    rows = list(result.scan("packets").collect().iter_rows(named=True))
    packets = read_packets(write_pcapng(result, tmp_path / "p.pcapng"))
    assert len(packets) == len(rows) > 100
    for row, packet in zip(rows, packets, strict=True):
        assert packet["time_ps"] == row["time_ps"]
        assert packet["bytes"] == max(row["bytes"], 54 + 4 * (row["kind"] in ("ack", "nack")))
        assert packet["sequence"] == row["sequence"] % 2**24
        assert packet["marked"] == row["marked"]
        assert (packet["opcode"] == 0x07) == (row["kind"] == "data")
        assert (b"dropped" in packet["comment"]) == (row["fate"] == "dropped")
        forwards = packet["ends"] == (bytes([10, 0, 0, 2]), bytes([10, 0, 0, 1]))
        assert forwards == (row["source"] == "host1/nic0")
    dropped = [row for row in rows if row["fate"] == "dropped"]
    assert dropped
    assert len(dropped) <= result.summary["network"]["packets_dropped"]


def test_what_cannot_be_looked_at_is_refused(tmp_path: Path) -> None:
    def refused(results: dict[str, Any], fidelity: str = "packet") -> str:
        with pytest.raises(InputError) as error:
            windtunnel.run(scenario("dctcp", results) | {"fidelity": fidelity}, out=tmp_path / "run")
        return str(error.value)

    assert "results.queue_pairs: needs packets to look at, found `fidelity: flow`" in refused(over_time(), "flow")
    assert "results.queue_pairs.every: too short" in refused(over_time("100 ps"))
    unknown = {"queue_pairs": {"every": "1 us", "pairs": [{"from": "host0/nic0", "to": "host9/nic0"}]}}
    assert "results.queue_pairs.pairs[0].to: no NIC `host9/nic0`" in refused(unknown)
    same = {"packets": {"pairs": [{"from": "host0/nic0", "to": "host0/nic0"}]}}
    assert "`from` and `to` are the same NIC" in refused(same)
    assert "expected `pairs` or `on`, found neither" in refused({"packets": {}})
    assert "expected at least 1 packet" in refused({"packets": {"on": "leaf0 -> host0/nic0", "limit": 0}})
    result = windtunnel.run(scenario("dctcp", {}), out=tmp_path / "plain")
    with pytest.raises(InputError, match="the run captured no packets"):
        write_pcapng(result, tmp_path / "none.pcapng")


def test_the_picture_has_a_line_for_each_pair(tmp_path: Path) -> None:
    result = windtunnel.run(scenario("dctcp", over_time()), out=tmp_path / "run")
    svg = queue_pairs(Rows.of(result.scan("queue_pairs").select(NEEDED).collect()))
    assert "host1/nic0 → host0/nic0" in svg
    # Windows and flights, round trips, delays and queues of two pairs; DCTCP has no pace.
    assert svg.count("<polyline") == 10
    assert "pace" not in svg
    assert result.plot.queue_pairs().svg == svg
