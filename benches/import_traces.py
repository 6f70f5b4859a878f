"""Import of a large Kineto trace: rate per core and peak memory.

A recorded trace is repeated to more than 1 GB, by a process of its own. Needs the folder of recordings that
`windtunnel validate` reads. The target: 150 MB/s of CPU time, 15% of the input in memory.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from windtunnel.engine import InputError
from windtunnel.validate.board import data_folder

SOURCE = "traces_kineto/hta_a100_ddp_ws2_rank0_nccl_data.json.gz"
LEAST = 1_100 << 20
"""Bytes of the trace that is made."""
COMMAND = Path(sys.executable).with_name("windtunnel")


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
        for name, arguments in ways(trace, Path(folder)).items():
            with subprocess.Popen(arguments, stdout=subprocess.DEVNULL) as process:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                raise RuntimeError(f"{name}: exit status {process.returncode}")
            spent, most = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
            print(
                f"{name}: {size / 1e6 / spent:,.0f} MB/s of CPU time, {most / 1e6:,.0f} MB at the peak, "
                f"{most / size:.1%} of the trace of {size / 1e6:,.0f} MB"
            )
    return 0


def ways(trace: Path, folder: Path) -> dict[str, list[str | Path]]:
    """Processes that import the trace, each of its own: what else this one has loaded is not the import's."""
    request = {"kind": "kineto", "sources": [str(trace)], "out": str(folder / "w.bin"), "missing": "alone"}
    call = f"from windtunnel import engine; engine.import_recordings({json.dumps(request)!r})"
    command: list[str | Path] = [COMMAND, "import", "kineto", trace, "--missing", "alone", "-o"]
    return {
        "a call of the engine, to .bin": [sys.executable, "-c", call],
        "the command, to .bin": [*command, folder / "c.bin"],
        "the command, to .wtw": [*command, folder / "c.wtw"],
    }


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
