"""The layers of a model converted one after the other, each on what the converted ones before it give."""

import sys

import torch

import heal
import latent

STRENGTH = 1e-3  # of the ridge that keeps an output matrix near what it was, as a part of its inputs' mean energy


def by_distance(weights):
    """Sums of causal attention weights [batch, heads, T, T] along diagonals: [heads, T]."""
    total = weights.sum(0)
    size = total.shape[-1]
    distance = (torch.arange(size)[:, None] - torch.arange(size)[None, :]).clamp(min=0)
    flat = torch.zeros(total.shape[0], size)
    return flat.index_add_(1, distance.flatten(), total.flatten(1))


class Streams:
    """Residual streams of the same calibration text, one sequence a row: the original's and the converted model's."""

    def __init__(self, model, tokens):
        self.model = model
        self.original = model.weights["token_embd.weight"][tokens]
        self.converted = self.original.clone()

    def statistics(self, index):
        """Of layer `index`: the moment of what the converted layer will read, the original's distances. Takes the
        original through its attention."""
        c, model = self.model.config, self.model
        moment = torch.zeros(c.hidden, c.hidden)
        distances = torch.zeros(c.heads, self.original.shape[1])
        for x in self.original:
            h = model.attention_input(index, x[None])
            x += model.attention(index, h, lambda weights: distances.add_(by_distance(weights)))[0]
        for x in self.converted:
            h = model.attention_input(index, x)
            moment += h.T @ h
        return latent.Statistics(moment / self.converted[..., 0].numel(), distances)

    def attend(self, index, weights):
        """Takes the converted stream through its attention, whose output matrix is fitted by least squares to bring it
        back to the original's; errors of a row count as the next norm will see them."""
        width = weights.output.shape[1]
        gram, cross = torch.zeros(width, width), torch.zeros(width, weights.output.shape[0])
        given = []
        for x, wanted in zip(self.converted, self.original):
            mixed = latent.mixed_values(self.model, weights, self.model.attention_input(index, x[None]))[0]
            size = wanted.pow(2).mean(-1, keepdim=True).rsqrt()
            inputs = mixed * size
            gram += inputs.T @ inputs
            cross += inputs.T @ ((wanted - x - mixed @ weights.output.T) * size)
            given.append(mixed)
        ridge = STRENGTH * gram.diagonal().mean() * torch.eye(width)
        weights.output = weights.output + torch.linalg.solve((gram + ridge).double(), cross.double()).T.float()
        for x, mixed in zip(self.converted, given):
            x += mixed @ weights.output.T

    def settle(self, index, weights, steps, rate):
        """`weights` trained to the same end, all of them."""
        inputs = self.model.attention_input(index, self.converted)
        sizes = self.original.pow(2).mean(-1, keepdim=True).sqrt()
        layer = heal.Layer(self.model.config, weights)
        with torch.enable_grad():
            errors = heal.settle(layer, inputs, self.original - self.converted, sizes, steps, rate)
        print(f"  layer {index}: error {errors[0]:.4f} to {errors[1]:.4f}", file=sys.stderr, flush=True)
        return layer.weights()

    def feed_forward(self, index):
        for stream in (self.original, self.converted):
            for x in stream:
                x += self.model.feed_forward(index, x)


def convert(model, tokens, rank, key_weight, steps=0, rate=0):
    """All layers as latent.Latent, from calibration tokens [sequences, positions]; each trained for so many steps."""
    streams, layers = Streams(model, tokens), []
    for index in range(model.config.layers):
        layer = latent.convert(model, index, streams.statistics(index), rank, key_weight)
        if steps > 0:
            layer = streams.settle(index, layer, steps, rate)
        streams.attend(index, layer)
        streams.feed_forward(index)
        layers.append(layer)
    return layers
