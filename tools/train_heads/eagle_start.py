"""Where an EAGLE head's training begins: fc, o and down fitted by least squares, one after the other, so that the
head's states come as near to the target's as they can before any gradient is computed."""

import torch

STRENGTH = 2e-3  # of the ridge, as a part of each input's own energy


class Fit:
    """Least squares from inputs [rows, k] to outputs [rows, n], summed up batch by batch."""

    def __init__(self, inputs, outputs):
        self.gram = torch.zeros(inputs, inputs, dtype=torch.float64)
        self.cross = torch.zeros(inputs, outputs, dtype=torch.float64)

    def add(self, x, y):
        self.gram += (x.T @ x).double()
        self.cross += (x.T @ y).double()

    def weight(self):
        """[n, k]."""
        ridge = self.gram.diagonal() * STRENGTH + 1e-9
        return torch.linalg.solve(self.gram + torch.diag(ridge), self.cross).T.float()


def states_before(model, batch, part):
    """What the fitted matrix reads, and what the head says without it, of the rows that count."""
    embedding = model.target.embedding[batch.later(batch.tokens, 1)]
    counts = batch.counts(0)
    if part == "fc":
        pairs = model.pairs(embedding, batch.outputs)[counts]
        return torch.cat([pairs, torch.ones(len(pairs), 1)], -1), 0
    x = model.enter(embedding, batch.outputs)
    mixed = model.attend(x, 0, [])
    if part == "o":
        return mixed[counts], x[counts]
    x = x + mixed @ model.o.T
    return model.gated(x)[counts], x[counts]


@torch.no_grad()
def begin(model, batches):
    """Fits the three. batches(): an iterable of batches, anew for each of them."""
    for part in ("fc", "o", "down"):
        fit = None
        for batch in batches():
            inputs, states = states_before(model, batch, part)
            wanted = batch.later(batch.outputs, 1)[batch.counts(0)].float() - states
            fit = fit or Fit(inputs.shape[1], wanted.shape[1])
            fit.add(inputs, wanted)
        weight = fit.weight()
        if part == "fc":
            model.fc.copy_(weight[:, :-1])
            model.fc_bias.copy_(weight[:, -1])
        else:
            getattr(model, part).copy_(weight)
