"""A llama-like GGUF model in f32 on the CPU: its weights dequantised, and the forward pass, in which attention can be
replaced layer by layer. Heads rotate neighbouring pairs, as GGUF files of this architecture do."""

import dataclasses

import gguf
import numpy as np
import torch


@dataclasses.dataclass
class Config:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    rope_base: float
    ffn: int
    context: int


def read_config(reader):
    def key(name):
        return reader.fields[f"llama.{name}"].contents()

    if reader.fields["general.architecture"].contents() != "llama":
        raise ValueError("only files of architecture llama can be converted")
    heads, hidden = key("attention.head_count"), key("embedding_length")
    config = Config(key("block_count"), hidden, heads, key("attention.head_count_kv"), hidden // heads,
                    key("attention.layer_norm_rms_epsilon"), key("rope.freq_base"), key("feed_forward_length"),
                    key("context_length"))
    rotated = reader.fields.get("llama.rope.dimension_count")
    if rotated is not None and rotated.contents() != config.head_dim:
        raise ValueError("heads are not rotated as a whole")
    return config


def floats(tensor):
    return torch.from_numpy(np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32))


def turn(x, base, first=0):
    """x[.., positions, width] with each neighbouring pair rotated by its position."""
    width, positions = x.shape[-1], torch.arange(first, first + x.shape[-2], dtype=torch.float64)
    angles = positions[:, None] * base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    cos, sin = angles.cos().float(), angles.sin().float()
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def softmax_weights(q, k, scale):
    """Causal attention weights [.., heads, queries, keys]."""
    scores = q @ k.transpose(-1, -2) * scale
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1)


class LlamaModel:
    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.config = read_config(self.reader)
        self.weights = {t.name: floats(t) for t in self.reader.tensors}

    def layer(self, index, part):
        return self.weights[f"blk.{index}.{part}.weight"]

    def attention(self, index, h, record=None):
        """The attention part of layer `index` over normed rows h[batch, positions, hidden]; record(weights) sees the
        attention weights."""
        c = self.config

        def heads_of(part, count):
            return (h @ self.layer(index, part).T).unflatten(-1, (count, c.head_dim)).transpose(1, 2)

        q = turn(heads_of("attn_q", c.heads), c.rope_base)
        k = turn(heads_of("attn_k", c.kv_heads), c.rope_base)
        v = heads_of("attn_v", c.kv_heads)
        group = c.heads // c.kv_heads
        weights = softmax_weights(q, k.repeat_interleave(group, 1), c.head_dim ** -0.5)
        if record is not None:
            record(weights)
        out = (weights @ v.repeat_interleave(group, 1)).transpose(1, 2).flatten(2)
        return out @ self.layer(index, "attn_output").T

    def attention_input(self, index, x):
        return rms_norm(x, self.layer(index, "attn_norm"), self.config.eps)

    def feed_forward(self, index, x):
        """What layer `index` adds to x behind its attention part."""
        h = rms_norm(x, self.layer(index, "ffn_norm"), self.config.eps)
        gate = torch.nn.functional.silu(h @ self.layer(index, "ffn_gate").T)
        return (gate * (h @ self.layer(index, "ffn_up").T)) @ self.layer(index, "ffn_down").T

    def head(self):
        return self.weights.get("output.weight", self.weights["token_embd.weight"])

    def logits(self, tokens, attention=None):
        """Logits of tokens[batch, positions]; attention(index, h) in place of the model's own."""
        x = self.weights["token_embd.weight"][tokens]
        for index in range(self.config.layers):
            x = x + (attention or self.attention)(index, self.attention_input(index, x))
            x = x + self.feed_forward(index, x)
        return rms_norm(x, self.weights["output_norm.weight"], self.config.eps) @ self.head().T


def perplexity(model, sequences, attention=None):
    """exp of the mean loss over every token but the first of sequences[batch, positions], one sequence at a time."""
    total, count = 0.0, 0
    for sequence in sequences:
        logits = model.logits(sequence[None], attention)[0, :-1]
        total += torch.nn.functional.cross_entropy(logits, sequence[1:], reduction="sum").item()
        count += len(sequence) - 1
    return float(np.exp(total / count))
