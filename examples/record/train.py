"""A small transformer, trained by data parallelism: a program to record.

    windtunnel record -o traces -- torchrun --nproc-per-node 4 train.py
    windtunnel import kineto traces -o step.wtw

Look at: every rank sums its gradients with the others' (DistributedDataParallel), and the loss is averaged by hand. On a machine
without GPUs the process group is gloo.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    """A few layers of attention and feed-forward over tokens."""

    def __init__(self, vocabulary: int, hidden: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, hidden)
        layer = nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next token: (batch, positions, vocabulary) of (batch, positions)."""
        return self.head(self.layers(self.embed(tokens)))


def main() -> None:
    """Trains on random tokens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=64)
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    torch.manual_seed(dist.get_rank())
    torch.set_num_threads(1)
    vocabulary = 256
    model = DistributedDataParallel(Model(vocabulary, given.hidden, heads=4, layers=2).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(given.steps):
        tokens = torch.randint(vocabulary, (4, 33), device=device)
        scores = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            print(f"step {step}: loss {mean.item() / dist.get_world_size():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
