"""An EAGLE head (Li et al., arXiv 2401.15077): one decoder layer over the next token's embedding beside what the
target's output head read last, trained also on guesses that follow its own guesses (arXiv 2503.01840).

Row t reads the token t+1 and the output state of token t; what it gives stands for the output state of token t+1,
and so guesses token t+2. The guess after it reads token t+2 and the row's own result; it sees the rows up to t, and
those of its own chain.
"""

import numpy
import torch
from torch.nn.functional import linear, scaled_dot_product_attention, silu

from divergence import Divergence, said_by


def rms(x, weight, eps):
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x, positions, base):
    """RoPE of [batch, heads, rows, head_dim], of pairs (i, i + half); positions [rows]."""
    half = x.shape[-1] // 2
    angle = positions[:, None] * base ** (-torch.arange(half) / half)
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def paired(weight, heads):
    """Rows of a GGUF q or k matrix, whose heads are ordered for pairs (2i, 2i + 1), for pairs (i, i + half)."""
    n, k = weight.shape
    return weight.view(heads, n // heads // 2, 2, k).transpose(1, 2).reshape(n, k)


class Eagle(torch.nn.Module):
    """Begins with the matrices of the target's last layer, and as a head that knows nothing: fc, o and down are zero
    until eagle_start.py fits them. Inside, fc and the attention read numbers of about one; tensors() has the scales
    in the matrices."""

    def __init__(self, target, spread):
        """spread [width]: the deviation of each value of the output states."""
        super().__init__()
        d, self.target = target.width, target
        self.eps, self.base = target.eps, target.rope_base
        self.register_buffer("spread", spread)
        self.register_buffer("pair_scale", torch.cat([torch.full((d,), 1 / target.embedding.std().item()), 1 / spread]))
        norm = target.output_norm.abs()
        self.register_buffer("attention_scale", 1 / norm.clamp(min=0.05 * norm.median().item()))
        parameter = torch.nn.Parameter
        last = target.last_layer()
        self.fc, self.fc_bias = parameter(torch.zeros(d, 2 * d)), parameter(torch.zeros(d))
        self.q = parameter(paired(last["q"], target.heads) * last["attn_norm"])
        self.k = parameter(paired(last["k"], target.kv_heads) * last["attn_norm"])
        self.v = parameter(last["v"] * last["attn_norm"])
        self.o, self.down = parameter(torch.zeros_like(last["o"])), parameter(torch.zeros_like(last["down"]))
        self.gate, self.up = parameter(last["gate"].clone()), parameter(last["up"].clone())
        self.ffn_norm = parameter(last["ffn_norm"].clone())

    def pairs(self, embedding, state):
        """What fc reads."""
        return torch.cat([embedding, state.float()], -1) * self.pair_scale

    def enter(self, embedding, state):
        return linear(self.pairs(embedding, state), self.fc, self.fc_bias).float()

    def heads_of(self, x, weight, heads, positions=None):
        y = linear(x, weight).float()
        y = y.view(*y.shape[:2], heads, -1).transpose(1, 2)
        return y if positions is None else rotate(y, positions, self.base)

    def attend(self, x, step, seen):
        """What the heads give at one step of all chains, [batch, rows, heads * head_dim]. `seen` has the keys and
        values of the steps before it, and takes those of this one."""
        t, rows = self.target, x.shape[1]
        x = x * self.attention_scale
        positions = torch.arange(rows) + step
        q = self.heads_of(x, self.q, t.heads, positions)
        share = t.heads // t.kv_heads
        k = self.heads_of(x, self.k, t.kv_heads, positions).repeat_interleave(share, 1)
        v = self.heads_of(x, self.v, t.kv_heads).repeat_interleave(share, 1)
        seen.append((k, v))
        if step == 0:
            return scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        q = q * t.head_dim ** -0.5
        scores = (q @ seen[0][0].transpose(-1, -2)).float()
        scores = scores.masked_fill(torch.ones(rows, rows, dtype=torch.bool).triu(1), float("-inf"))
        own = [(q * key).sum(-1, keepdim=True).float() for key, _ in seen[1:]]
        weights = torch.cat([scores] + own, -1).softmax(-1)
        mixed = weights[..., :rows] @ seen[0][1]
        for i, (_, value) in enumerate(seen[1:]):
            mixed = mixed + weights[..., rows + i:rows + i + 1] * value
        return mixed.transpose(1, 2).flatten(2)

    def gated(self, x):
        """What `down` reads."""
        x = rms(x, self.ffn_norm, self.eps)
        return silu(linear(x, self.gate)) * linear(x, self.up)

    def layer(self, state, embedding, step, seen):
        """One step of all chains: states [batch, rows, width] and the embeddings beside them, to the next states."""
        x = self.enter(embedding, state)
        x = x + linear(self.attend(x, step, seen), self.o)
        return x + linear(self.gated(x), self.down)

    @torch.no_grad()
    def take(self, named):
        """What tensors() gave, perhaps from a file."""
        for name in self.tensors():
            getattr(self, self.own_name(name)).copy_(named[name].float() / self.scale_of(name))

    @staticmethod
    def own_name(name):
        known = {"fc.weight": "fc", "fc.bias": "fc_bias", "layers.0.post_attention_layernorm.weight": "ffn_norm"}
        return known.get(name) or name.split(".")[3].removesuffix("_proj")

    def scale_of(self, name):
        """What our columns are multiplied with in the file."""
        if name == "fc.weight":
            return self.pair_scale
        return self.attention_scale if name.split(".")[-2] in ("q_proj", "k_proj", "v_proj") else 1

    def tensors(self):
        """Under the names of EAGLE's own files."""
        names = ["fc.weight", "fc.bias", "layers.0.post_attention_layernorm.weight"]
        names += [f"layers.0.self_attn.{part}_proj.weight" for part in "qkvo"]
        names += [f"layers.0.mlp.{part}_proj.weight" for part in ("gate", "up", "down")]
        return {name: getattr(self, self.own_name(name)).detach() * self.scale_of(name) for name in names}


class Batch:
    """Some sequences of the stream, padded to the longest: tokens and output states of each row."""

    def __init__(self, stream, outputs, sequences, answers_only=False):
        """answers_only: rows begin with the last token of the prompt."""
        starts, ends = stream.starts[sequences], stream.ends[sequences]
        if answers_only:
            starts = numpy.maximum(starts, stream.answers[sequences] - 1)
        self.length = int((ends - starts).max())
        index = torch.from_numpy(starts)[:, None] + torch.arange(self.length)
        self.length_of = torch.from_numpy(ends - starts)
        self.answer = torch.from_numpy(stream.answers[sequences] - starts)
        index = torch.minimum(index, torch.from_numpy(ends)[:, None] - 1)
        self.tokens = torch.from_numpy(stream.tokens)[index]
        self.outputs = outputs[index]

    def counts(self, step):
        """[batch, rows] whether row t's guess at this step, token t+2+step, is a token of the answer."""
        place = torch.arange(self.length)[None] + 2 + step
        return (place >= self.answer[:, None]) & (place < self.length_of[:, None])

    def later(self, what, by):
        """Row t gets what row t + by has; the last rows anything."""
        return what[:, (torch.arange(self.length) + by).clamp(max=self.length - 1)]


def steps_of(model, batch, embedding, steps):
    """States of each step of the chains."""
    seen, state = [], batch.outputs
    for step in range(steps):
        state = model.layer(state, embedding[batch.later(batch.tokens, 1 + step)], step, seen)
        yield step, state


def loss_of(model, batch, target, rows_of_head, steps, decay, closeness):
    """How far guesses are from what the target itself says at their places, a later step counting less; and, by the
    weight `closeness`, how far states are from its states."""
    said, total = said_by(batch.outputs, rows_of_head), 0
    for step, state in steps_of(model, batch, target.embedding, steps):
        counts = batch.counts(step)
        states = state[counts].float()
        apart = (states - batch.later(batch.outputs, 1 + step)[counts].float()) / model.spread
        total = total + decay ** step * (Divergence.apply(states, rows_of_head, batch.later(said, 1 + step)[counts])
                                         + closeness * apart.pow(2).mean())
    return total


@torch.no_grad()
def measure(model, batches, target, vocabulary, steps):
    """How often the guess of each step is right, behind true tokens; and the tokens a step of the target gives on
    average with chains of 1, 2, ... guesses."""
    right, reached, count = torch.zeros(steps), torch.zeros(steps), torch.zeros(steps)
    rows_of_head = target.head[vocabulary]
    for batch in batches:
        chain = torch.ones(batch.tokens.shape, dtype=torch.bool)
        for step, state in steps_of(model, batch, target.embedding, steps):
            counts = batch.counts(step)
            token = vocabulary[(state.float() @ rows_of_head.T).argmax(-1)]
            hit = (token == batch.later(batch.tokens, 2 + step)) & counts
            chain = chain & hit & batch.counts(0)
            right[step] += hit.sum()
            reached[step] += chain.sum()
            count[step] += counts.sum()
    return (right / count).tolist(), (1 + torch.cumsum(reached / count[0], 0)).tolist()
