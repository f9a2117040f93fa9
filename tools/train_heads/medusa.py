"""Medusa heads (Cai et al., arXiv 2401.10774): head i guesses, from the hidden state at token t, token t+2+i."""

import torch

from divergence import Divergence, said_by


class ResBlocks(torch.nn.Module):
    """x + silu(W x + b), as often as there are layers; near the identity at first, no layer like another, for those
    that are alike would learn the same."""

    def __init__(self, width, layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers))
        for layer in self.layers:
            torch.nn.init.normal_(layer.weight, std=0.003)
            torch.nn.init.zeros_(layer.bias)

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.nn.functional.silu(layer(x))
        return x


class Medusa(torch.nn.Module):
    def __init__(self, width, heads, layers):
        super().__init__()
        self.heads = torch.nn.ModuleList(ResBlocks(width, layers) for _ in range(heads))

    def forward(self, x):
        """[rows, width] -> [heads, rows, width], each to go through the target's output head."""
        return torch.stack([head(x) for head in self.heads])

    def tensors(self):
        """Under the names that vLLM reads."""
        return {f"blocks.{i}.layers.{j}.{kind}": getattr(layer, kind).detach()
                for i, head in enumerate(self.heads) for j, layer in enumerate(head.layers)
                for kind in ("weight", "bias")}


class Spans:
    """Places of the stream to learn from: spans of `length` tokens in answers, and which of their guesses count."""

    def __init__(self, stream, heads, length):
        self.length, self.heads = length, heads
        self.ends = torch.from_numpy(stream.ends[stream.sequence_of()])
        self.first = torch.from_numpy(stream.answers[stream.sequence_of()]) - 1
        self.begins = torch.arange(0, len(stream.tokens) - length - heads - 2, length)
        inside = (self.begins + length > self.first[self.begins])
        self.begins = self.begins[inside]

    def rows(self, begins):
        """[spans, length] indices of tokens, and [heads, spans, length] whether the guess exists."""
        t = begins[:, None] + torch.arange(self.length)
        valid = torch.stack([(t >= self.first[t]) & (t + 2 + i < self.ends[t]) for i in range(self.heads)])
        return t, valid


def loss_of(model, hidden, rows_of_head, spans, begins, weights):
    """Mean over the guesses of the divergence from what the target itself says at their places."""
    t, valid = spans.rows(begins)
    around = begins[:, None] + torch.arange(1, spans.length + spans.heads + 1)
    said = said_by(hidden[around], rows_of_head)
    total = 0
    for i, head in enumerate(model.heads):
        guessed = head(hidden[t[valid[i]]].float())
        wanted = said[:, i:i + spans.length][valid[i]]
        total = total + weights[i] * Divergence.apply(guessed.float(), rows_of_head, wanted)
    return total


@torch.no_grad()
def measure(model, stream, hidden, rows_of_head, vocabulary, heads):
    """How often each head is right, and the tokens a step gives on average with chains of 1, 2, ... guesses."""
    spans = Spans(stream, heads, 256)
    tokens = torch.from_numpy(stream.tokens)
    right, reached, count = torch.zeros(heads), torch.zeros(heads), torch.zeros(heads)
    for begin in spans.begins:
        t, valid = spans.rows(begin[None])
        guesses = model(hidden[t[0]].float())
        chain = torch.ones(spans.length, dtype=torch.bool)
        for i in range(heads):
            token = vocabulary[(guesses[i] @ rows_of_head.T).argmax(-1)]
            hit = (token == tokens[(t[0] + 2 + i).clamp(max=len(tokens) - 1)]) & valid[i, 0]
            chain = chain & hit
            right[i] += hit.sum()
            reached[i] += chain.sum()
            count[i] += valid[i, 0].sum()
    lengths = 1 + torch.cumsum(reached / count[0], 0)
    return (right / count).tolist(), lengths.tolist()
