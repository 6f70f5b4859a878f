"""Five all-to-all-v of 1 BDP while one setting is varied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.experiments.collectives import RIVALS, Case, Fabric, all_to_all_v, many, scale, sizes_of, table

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results


DRIFTS = (0, 10, 20, 40)

WHY = {
    "dcsim_9000_over_1500": "flows of one BDP: RTT_max is 22.04 us for 9,000 B and 10.34 us for 1,500 B, and "
    "counts for more "
    "than headers and SIMs",
    "buffers_dcsim_over_others": "what is lost waits for ten RTT_max: see figure 11",
    "loss_dcsim_buffers": "see figure 11",
    "largest_dcsim_over_others": "collectives of two and four members are short permutations, where dcPIM and "
    "pHost send at once",
}
"""By figure observed: why a claim on it does not hold."""


def observe(_results: Results) -> dict[str, Any]:
    """Ratios of mean CCTs: the worst over what is varied of the mean over the others."""
    plain = Fabric(k=scale())
    choices = sizes_of(plain)
    points: dict[tuple[str, str], Case] = {}

    def add(what: str, fabric: Fabric, count: int, sizes: list[int]) -> None:
        traffic = all_to_all_v(fabric.hosts, (count, sizes), fabric.packets(1))
        points.update({(what, name): Case(name, traffic, fabric=fabric) for name in RIVALS})

    for mtu in (1_500, 4_000, 9_000):
        add(f"{mtu} B packets", Fabric(k=plain.k, mtu=mtu), 5, choices)
    for buffer in (30_000, 125_000, 250_000, 500_000):
        add(f"{buffer // 1000} KB buffers", Fabric(k=plain.k, buffer=buffer), 5, choices)
    for count in (1, 3, 6):
        add(f"{count} collectives", plain, count, choices)
    for most in choices:
        add(f"at most {most} members", plain, 5, [size for size in choices if size <= most])
    traffic = all_to_all_v(plain.hosts, (5, choices), plain.packets(1))
    points.update({(f"{ppm} ppm", "dcsim"): Case("dcsim", traffic, {"drift_ppm": ppm}, plain) for ppm in DRIFTS})
    found = dict(zip(points, many(points.values()), strict=True))

    def worst(kind: str) -> float:
        whats = {
            what for what, _ in points if what.split(" ", 1)[1] == kind or (kind == "members" and what.endswith(kind))
        }
        cct = {key: each["cct_us"].mean for key, each in found.items()}
        return max(sum(cct[what, "dcsim"] / cct[what, name] for name in RIVALS[1:]) / 3 for what in whats)

    return {
        "by setting": table("setting", {f"{what}, {name}": each for (what, name), each in found.items()}),
        "dcsim_9000_over_1500": found["9000 B packets", "dcsim"]["cct_us"].mean
        / found["1500 B packets", "dcsim"]["cct_us"].mean,
        "packets_dcsim_over_others": worst("B packets"),
        "buffers_dcsim_over_others": worst("KB buffers"),
        "loss_dcsim_buffers": sum(found[f"{size} KB buffers", "dcsim"]["loss"].mean for size in (125, 250, 500)),
        "collectives_dcsim_over_others": worst("collectives"),
        "largest_dcsim_over_others": worst("members"),
        "drift_40_over_0": found["40 ppm", "dcsim"]["cct_us"].mean / found["0 ppm", "dcsim"]["cct_us"].mean,
    }
