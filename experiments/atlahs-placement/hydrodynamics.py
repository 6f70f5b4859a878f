"""Writes `hydrodynamics.jsonl`, in the way of LULESH: 64 ranks on a grid of 4 × 4 × 4, 20 steps.

A step computes 1.5 ms, exchanges its faces of 30³ elements (three fields of 8 bytes) with up to six neighbours, computes
0.5 ms, and agrees on the next step's length by an all-reduce of 8 bytes. `python hydrodynamics.py`, then
`windtunnel workload convert hydrodynamics.jsonl hydrodynamics.wtw`.
"""

from pathlib import Path

from windtunnel.workload import Workload

SIDE, STEPS, FACE = 4, 20, 3 * 30 * 30 * 8


def main() -> None:
    ranks = SIDE**3
    work = Workload(ranks)
    world = work.communicator("everybody", range(ranks))
    last: list[list[str]] = [[] for _ in range(ranks)]
    for step in range(STEPS):
        ready = [work.compute(rank, "1500 us", id=f"c{step}", after=last[rank]) for rank in range(ranks)]
        parts: list[list[str]] = [[] for _ in range(ranks)]
        for rank in range(ranks):
            place = [rank % SIDE, rank // SIDE % SIDE, rank // SIDE**2]
            for axis in range(3):
                for way in (-1, 1):
                    if not 0 <= place[axis] + way < SIDE:
                        continue
                    to, tag = rank + way * SIDE**axis, 10 * step + 2 * axis + (way > 0)
                    back = 10 * step + 2 * axis + (way < 0)
                    work.send(rank, to, f"{FACE} B", tag=tag, id=f"s{step}-{tag}", after=[ready[rank]])
                    came = work.receive(rank, to, tag=back, id=f"r{step}-{back}", after=[ready[rank]])
                    parts[rank].append(came)
        for rank in range(ranks):
            inner = work.compute(rank, "500 us", id=f"d{step}", after=parts[rank])
            last[rank] = [work.collective(rank, "all_reduce", world, "8 B", id=f"a{step}", after=[inner])]
    work.write(Path(__file__).parent / "hydrodynamics.jsonl")


if __name__ == "__main__":
    main()
