"""An EAGLE-3 head (Li et al., arXiv 2503.01840): one decoder layer over the next token's embedding and the
target's hidden states at three points, trained on guesses that follow its own guesses ("training-time test").

Row t reads the token t+1 and the features of token t, and guesses token t+2. The guess after it reads token t+2
and the row's own output in place of features; it sees the rows up to t, and those of its own chain.
"""

import numpy
import torch
from torch.nn.functional import linear, silu


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
    def __init__(self, target, spread, scale):
        """spread [3 * width]: the deviation of each feature, by which it is divided; the layer begins as the
        target's last one on its third feature, whose rows are `scale` times as large as those in here."""
        super().__init__()
        d, self.target = target.width, target
        self.eps, self.base = target.eps, target.rope_base
        self.register_buffer("spread", spread)
        parameter = torch.nn.Parameter
        fc = torch.zeros(d, 3 * d)
        fc[:, 2 * d:] = torch.diag(spread[2 * d:] / scale)
        self.fc = parameter(fc)
        last = target.last_layer()
        for name, heads in (("q", target.heads), ("k", target.kv_heads)):
            setattr(self, name, parameter(torch.cat([torch.zeros_like(last[name]), paired(last[name], heads)], 1)))
        self.v = parameter(torch.cat([torch.zeros_like(last["v"]), last["v"]], 1))
        self.o, self.down = parameter(last["o"] / scale), parameter(last["down"] / scale)
        self.gate, self.up = parameter(last["gate"].clone()), parameter(last["up"].clone())
        self.embedding_norm, self.norm = parameter(torch.ones(d)), parameter(target.output_norm.clone())
        self.hidden_norm, self.ffn_norm = parameter(last["attn_norm"].clone()), parameter(last["ffn_norm"].clone())

    def fuse(self, features):
        return linear(features.float() / self.spread, self.fc)

    def heads_of(self, x, weight, heads, positions=None):
        y = linear(x, weight).float()
        y = y.view(*y.shape[:2], heads, -1).transpose(1, 2)
        return y if positions is None else rotate(y, positions, self.base)

    def layer(self, hidden, embedding, step, seen):
        """One step of all chains: hidden [batch, rows, width] and the embeddings beside it. `seen` has the keys
        and values of the steps before it, and takes those of this one."""
        t = self.target
        x = torch.cat([rms(embedding, self.embedding_norm, self.eps), rms(hidden, self.hidden_norm, self.eps)], -1)
        positions = torch.arange(x.shape[1]) + step
        q = self.heads_of(x, self.q, t.heads, positions) * t.head_dim ** -0.5
        share = t.heads // t.kv_heads
        k = self.heads_of(x, self.k, t.kv_heads, positions).repeat_interleave(share, 1)
        v = self.heads_of(x, self.v, t.kv_heads).repeat_interleave(share, 1)
        seen.append((k, v))
        rows = x.shape[1]
        scores = (q @ seen[0][0].transpose(-1, -2)).float()
        scores = scores.masked_fill(torch.ones(rows, rows, dtype=torch.bool).triu(1), float("-inf"))
        own = [(q * key).sum(-1, keepdim=True).float() for key, _ in seen[1:]]
        weights = torch.cat([scores] + own, -1).softmax(-1)
        mixed = weights[..., :rows] @ seen[0][1]
        for i, (_, value) in enumerate(seen[1:]):
            mixed = mixed + weights[..., rows + i:rows + i + 1] * value
        hidden = hidden + linear(mixed.transpose(1, 2).flatten(2), self.o)
        x = rms(hidden, self.ffn_norm, self.eps)
        return hidden + linear(silu(linear(x, self.gate)) * linear(x, self.up), self.down)

    def guess_states(self, hidden):
        """What goes through the target's output head."""
        return rms(hidden, self.norm, self.eps)

    def tensors(self):
        """Under the names of EAGLE-3's own files; the features' spread is part of fc."""
        named = {"fc.weight": self.fc / self.spread, "norm.weight": self.norm,
                 "midlayer.input_layernorm.weight": self.embedding_norm,
                 "midlayer.hidden_norm.weight": self.hidden_norm,
                 "midlayer.post_attention_layernorm.weight": self.ffn_norm}
        for name in ("q", "k", "v", "o"):
            named[f"midlayer.self_attn.{name}_proj.weight"] = getattr(self, name)
        for name in ("gate", "up", "down"):
            named[f"midlayer.mlp.{name}_proj.weight"] = getattr(self, name)
        return {name: tensor.detach() for name, tensor in named.items()}


class Batch:
    """Some sequences of the stream, padded to the longest: tokens, features and output states of each row."""

    def __init__(self, stream, features, outputs, sequences, answers_only=False):
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
        self.features = features[index]
        self.outputs = outputs[index]

    def counts(self, step):
        """[batch, rows] whether row t's guess at this step, token t+2+step, is a token of the answer."""
        place = torch.arange(self.length)[None] + 2 + step
        return (place >= self.answer[:, None]) & (place < self.length_of[:, None])

    def later(self, what, by):
        """Row t gets what row t + by has; the last rows anything."""
        return what[:, (torch.arange(self.length) + by).clamp(max=self.length - 1)]


def steps_of(model, batch, embedding, steps):
    """Hidden states of each step of the chains."""
    seen, hidden = [], model.fuse(batch.features)
    for step in range(steps):
        beside = embedding[batch.later(batch.tokens, 1 + step)]
        hidden = model.layer(hidden, beside, step, seen)
        yield step, hidden


def loss_of(model, batch, target, rows_of_head, steps, decay):
    """Divergence from what the target itself says at the guesses' places, a later step counting less."""
    total = 0
    for step, hidden in steps_of(model, batch, target.embedding, steps):
        counts = batch.counts(step)
        with torch.no_grad():
            wanted = batch.later(batch.outputs, 1 + step)[counts].float()
            teacher = torch.log_softmax((wanted @ rows_of_head.T).float(), -1)
        student = torch.log_softmax((model.guess_states(hidden[counts]) @ rows_of_head.T).float(), -1)
        total = total + decay ** step * (teacher.exp() * (teacher - student)).sum(-1).mean()
    return total


@torch.no_grad()
def measure(model, batches, target, vocabulary, steps):
    """How often the guess of each step is right, behind true tokens; and the tokens a step of the target gives on
    average with chains of 1, 2, ... guesses."""
    right, reached, count = torch.zeros(steps), torch.zeros(steps), torch.zeros(steps)
    rows_of_head = target.head[vocabulary]
    for batch in batches:
        chain = torch.ones(batch.tokens.shape, dtype=torch.bool)
        for step, hidden in steps_of(model, batch, target.embedding, steps):
            counts = batch.counts(step)
            token = vocabulary[(model.guess_states(hidden) @ rows_of_head.T).argmax(-1)]
            hit = (token == batch.later(batch.tokens, 2 + step)) & counts
            chain = chain & hit & batch.counts(0)
            right[step] += hit.sum()
            reached[step] += chain.sum()
            count[step] += counts.sum()
    return (right / count).tolist(), (1 + torch.cumsum(reached / count[0], 0)).tolist()
