"""Brief training of one converted layer's attention (latent.py) by itself, towards what the original's residual stream
is behind it, on a CPU."""

import numpy as np
import torch
from torch.nn.functional import linear, pad, scaled_dot_product_attention

import latent
from llama_model import turn


class Layer(torch.nn.Module):
    """The attention part of a converted layer, to be trained. Its latents have no norm: it is the identity. Products
    are in bfloat16."""

    def __init__(self, config, weights):
        super().__init__()
        self.config, self.norm, self.rank = config, weights.norm, weights.norm.numel()
        # What a latent row is multiplied with between kv_a and k_b or v_b.
        self.unit = weights.norm[0].item() * config.eps ** -0.5
        row = weights.kv_a.clone()
        row[:self.rank] *= self.unit
        for name, part in (("q", weights.q), ("kv_a", row), ("k_b", weights.k_b), ("v_b", weights.v_b),
                           ("output", weights.output)):
            setattr(self, name, torch.nn.Parameter(part.clone()))

    def forward(self, h):
        c, rank = self.config, self.rank
        q, row = (linear(h.bfloat16(), part.bfloat16()) for part in (self.q, self.kv_a))
        q = q.unflatten(-1, (c.heads, -1)).transpose(1, 2)
        made = row[:, None, :, :rank]
        rotated = turn(row[:, None, :, rank:].float(), c.rope_base).bfloat16().expand(-1, c.heads, -1, -1)
        k = torch.cat((made @ self.k_b.bfloat16(), rotated), -1)
        q = torch.cat((q[..., :c.head_dim], turn(q[..., c.head_dim:].float(), c.rope_base).bfloat16()), -1)
        v = made @ self.v_b.bfloat16().transpose(-1, -2)
        # As wide as k: the fast kernel wants that.
        v = pad(v, (0, k.shape[-1] - c.head_dim))
        out = scaled_dot_product_attention(q, k, v, is_causal=True)[..., :c.head_dim]
        return linear(out.transpose(1, 2).flatten(2), self.output.bfloat16()).float()

    def weights(self):
        """As they are now."""
        row = self.kv_a.detach().clone()
        row[:self.rank] /= self.unit
        parts = {name: getattr(self, name).detach().clone() for name in ("q", "k_b", "v_b", "output")}
        return latent.Latent(kv_a=row, norm=self.norm, **parts)


class Course:
    """Steps of AdamW whose size rises over some steps and falls along a cosine."""

    def __init__(self, module, rate, warm):
        self.optimizer = torch.optim.AdamW(module.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0)
        self.module, self.rate, self.warm, self.steps = module, rate, warm, 0

    def step(self, loss, done):
        """done: 0 at the beginning, 1 at the end."""
        self.steps += 1
        size = self.rate * min(1, self.steps / self.warm) * (0.02 + 0.98 * 0.5 * (1 + np.cos(np.pi * done)))
        for group in self.optimizer.param_groups:
            group["lr"] = size
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        self.optimizer.step()


def settle(layer, inputs, wanted, sizes, steps, rate, batch=8):
    """Trains one layer for so many steps to give `wanted` for normed `inputs` [sequences, positions, hidden], errors
    counted in parts of `sizes` [sequences, positions, 1]. Returns the mean error of the first steps and the last."""
    course, errors = Course(layer, rate, 5), []
    for step in range(steps):
        chosen = torch.randperm(len(inputs))[:batch]
        error = ((layer(inputs[chosen]) - wanted[chosen]) / sizes[chosen]).pow(2)[:, 1:].mean()
        errors.append(error.item())
        course.step(error / errors[0], step / steps)
    return np.mean(errors[:5]), np.mean(errors[-5:])
