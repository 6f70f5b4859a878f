"""Writes `financial.spc`: 5,000 requests of an online transaction workload, and from it the two workloads of this experiment.

The traces of the UMass collection (Financial) are not at hand. What is public of Financial1: 24 units, 77% of the requests are
writes, a mean request of about 3.5 KB, a few units take most requests. Drawn here with these figures and a fixed seed; times are
compressed so that 5,000 requests come in 0.5 ms: `python financial.py`, then

    windtunnel import storage financial.spc --architecture direct-drive -o direct-drive.wtw
"""

import random
from pathlib import Path

SIZES = {512: 24, 1_024: 12, 2_048: 14, 3_072: 6, 4_096: 28, 8_192: 11, 16_384: 4, 24_576: 1}
UNITS, REQUESTS, WRITES, SECONDS = 24, 5_000, 0.77, 0.0005


def main() -> None:
    draw = random.Random(24)
    popularity = [1 / (unit + 1) ** 0.7 for unit in range(UNITS)]
    times = sorted(draw.random() * SECONDS for _ in range(REQUESTS))
    with (Path(__file__).parent / "financial.spc").open("w", encoding="utf-8") as out:
        for time in times:
            unit = draw.choices(range(UNITS), popularity)[0]
            size = draw.choices(list(SIZES), list(SIZES.values()))[0]
            kind = "W" if draw.random() < WRITES else "R"
            out.write(f"{unit},{draw.randrange(1 << 22) * 8},{size},{kind},{time:.9f}\n")


if __name__ == "__main__":
    main()
