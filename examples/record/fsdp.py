"""A small transformer whose layers are sharded over all ranks (FSDP2), to capture at any scale without GPUs.

    windtunnel record --stub 8 -o step.wtw -- python fsdp.py

Look at: the parameters of each layer are gathered before its forward pass and again before its backward pass, and
its gradients are summed by a reduce-scatter; what is in no layer is gathered once.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Model(nn.Module):
    """A few layers of attention and feed-forward over tokens."""

    def __init__(self, vocabulary: int, hidden: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, dropout=0.0, batch_first=True) for _ in range(layers)
        )
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next token: (batch, positions, vocabulary) of (batch, positions)."""
        values = self.embed(tokens)
        for layer in self.layers:
            values = layer(values)
        return self.head(values)


def main() -> None:
    """Trains on random tokens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=64)
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    vocabulary = 256
    model = Model(vocabulary, given.hidden, heads=4, layers=2).to(device)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(given.steps):
        tokens = torch.randint(vocabulary, (4, 33), device=device)
        scores = model(tokens[:, :-1])
        nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
