"""A scheduler and a placement of one's own. From this folder:

    windtunnel run ../philly-month.yaml --scheduler shortest_fits.py:ShortestFits --set jobs.count=2000
    windtunnel run ../philly-month.yaml --placement shortest_fits.py:FullestHosts --set jobs.count=2000
"""

from collections.abc import Mapping, Sequence

from windtunnel.policies import Need, Placement, Scheduler, Start


class ShortestFits(Scheduler):
    """The shortest waiting job that fits starts first; after a day of waiting a job goes before all others."""

    patience_s = 86_400.0

    def decide(self) -> Start | None:
        free = sum(len(region) for region in self.free)
        late = [job for job in self.waiting.values() if self.now_s - job.submit_s > self.patience_s]
        if late:
            oldest = min(late, key=lambda job: job.submit_s)
            fits = oldest.gpus <= free and oldest.id not in self.refused
            return Start(oldest.id) if fits else None
        fitting = [job for job in self.waiting.values() if job.gpus <= free and job.id not in self.refused]
        return Start(min(fitting, key=lambda job: (job.estimate_s, job.id)).id) if fitting else None


class FullestHosts(Placement):
    """Hosts with the fewest free GPUs first: what is broken already is used up."""

    def place(self, free: Mapping[int, Sequence[int]], need: Need) -> Sequence[int] | None:
        gpus: list[int] = []
        for host in sorted(free, key=lambda host: (len(free[host]), host)):
            gpus += free[host][: need.gpus - len(gpus)]
        return gpus if len(gpus) == need.gpus else None
