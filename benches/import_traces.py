"""Import of a large Kineto trace: rate per core and peak memory.

A recorded trace is repeated to more than 1 GB, by a process of its own. Needs the folder of recordings that
`windtunnel validate` reads. The target: 150 MB/s of CPU time, 15% of the input in memory.
"""

from __future__ import annotations

import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from windtunnel import engine
from windtunnel.engine import InputError
from windtunnel.validate.board import data_folder

SOURCE = "traces_kineto/hta_a100_ddp_ws2_rank0_nccl_data.json.gz"
LEAST = 1_100 << 20
"""Bytes of the trace that is made."""


def main() -> int:
    """Makes the trace, imports it, prints what that took."""
    try:
        source = data_folder(None) / SOURCE
    except InputError as error:
        print(f"skipped: {error}", file=sys.stderr)
        return 0
    if not source.is_file():
        print(f"skipped: needs {SOURCE} in the folder of recordings", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        size = _repeat(source, trace)
        request = {"kind": "kineto", "sources": [str(trace)], "out": str(Path(folder) / "w.bin"), "missing": "alone"}
        before, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answer = json.loads(engine.import_recordings(json.dumps(request)))
        spent = time.process_time() - before
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(f"trace: {size / 1e6:,.0f} MB, {answer['workload']['operations']:,} operations")
        print(f"rate: {size / 1e6 / spent:,.0f} MB/s of CPU time")
        print(
            f"memory: {most / 1e6:,.0f} MB at the peak, {most / size:.1%} of the trace ({peak / 1024:,.0f} MB before)"
        )
    return 0


def _repeat(source: Path, target: Path) -> int:
    """Writes the trace of `source` again and again, in a process of its own, and returns how many bytes it has."""
    subprocess.run([sys.executable, __file__, str(source), str(target)], check=True)
    return target.stat().st_size


def _write(source: Path, target: Path) -> None:
    with gzip.open(source, "rt", encoding="utf-8") as packed:
        whole = json.load(packed)
    events = whole.pop("traceEvents")
    spans = [
        (event["ts"], event["ts"] + event["dur"]) for event in events if "dur" in event and event["cat"] != "Trace"
    ]
    length = max(end for _, end in spans) - min(start for start, _ in spans)
    written, again = 0, False
    with target.open("w", encoding="utf-8") as out:
        out.write(json.dumps(whole)[:-1] + ', "traceEvents": [')
        while written < LEAST:
            for event in events:
                if again and "ts" in event:
                    event["ts"] = round(event["ts"] + length, 3)
                if again and "correlation" in event.get("args", {}):
                    event["args"]["correlation"] += 1_000_000
            text = json.dumps(events, indent=1)[1:-1]
            out.write(("," if again else "") + text)
            written += len(text)
            again = True
        out.write("]}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        _write(Path(sys.argv[1]), Path(sys.argv[2]))
        sys.exit(0)
    sys.exit(main())
