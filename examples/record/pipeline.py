"""A pipeline of as many stages as there are ranks, a layer each, by the 1F1B schedule, to capture without GPUs.

    windtunnel record --stub 4 -o step.wtw -- python pipeline.py

Look at: each stage sends what it made of a microbatch to the next one, and the gradient of what it got back;
stages wait for the first microbatch and for the last gradient.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def main() -> None:
    """Trains on random values."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--microbatches", type=int, default=4)
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    layer = nn.TransformerEncoderLayer(given.hidden, 4, 4 * given.hidden, dropout=0.0, batch_first=True).to(device)
    # What stages hand on; unless it is told, they send each other its shape before the first step, which a capture has no peer for.
    first = torch.empty(2, 32, given.hidden, device=device)
    between = first.clone().requires_grad_()
    takes = between if rank else first
    stage = PipelineStage(layer, rank, ranks, device, input_args=(takes,), output_args=(between,))
    schedule = Schedule1F1B(stage, given.microbatches, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    for _ in range(given.steps):
        values = torch.randn(2 * given.microbatches, 32, given.hidden, device=device)
        if rank == 0:
            schedule.step(values)
        elif rank == ranks - 1:
            schedule.step(target=values)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
