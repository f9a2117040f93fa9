"""Grouped-query attention as multi-head latent attention, in closed form from calibration statistics.

After TransMLA (arXiv 2502.07864): per rotary frequency the keys of all KV heads are mixed (which commutes with RoPE)
so that one combined head holds most of their energy; it keeps RoPE and becomes the shared key. What is left of the keys
loses RoPE and is factorised together with the values.

Three things are ours. The mixture is of complex numbers, a pair of a key being one, and its energy counts as much as
the queries that meet it are large. A rotation that is dropped is replaced by its mean under the attention of the
calibration text, a complex number per query head and frequency. And the norm that the latent goes through is made the
identity: its input is so small that the norm's epsilon is all it divides by, and its weight brings the scale back."""

import dataclasses

import torch

from llama_model import rms_norm, softmax_weights, turn

# Mean square of the norm's input, as a part of its epsilon: the first position of a text can have some ten thousand
# times the usual.
INPUT = 1e-8


@dataclasses.dataclass
class Statistics:
    """Of one layer over calibration text: E[h h^T] of its normed input, and the attention of each query head by the
    distance to what it attends to, [heads, distances]."""

    moment: torch.Tensor
    distances: torch.Tensor


@dataclasses.dataclass
class Latent:
    """Weights of one layer as DeepSeek's files have them. q: [heads * (head_dim + rope), hidden], per head the part
    without positions first; kv_a: [rank + rope, hidden]; k_b: [heads, rank, head_dim]; v_b: [heads, head_dim, rank]."""

    q: torch.Tensor
    kv_a: torch.Tensor
    norm: torch.Tensor
    k_b: torch.Tensor
    v_b: torch.Tensor
    output: torch.Tensor  # [hidden, heads * head_dim]


def as_complex(weight, heads):
    """Rows of interleaved pairs as complex [heads, frequencies, hidden]."""
    pairs = weight.unflatten(0, (heads, -1, 2))
    return torch.complex(pairs[:, :, 0], pairs[:, :, 1])


def as_pairs(rows):
    """The other way: complex [.., frequencies, width] as [.., frequencies, 2, width]."""
    return torch.stack((rows.real, rows.imag), -2)


def energies(rows, moment):
    """E|row h|^2 of complex [.., hidden]."""
    return sum((part @ moment * part).sum(-1) for part in (rows.real, rows.imag))


def key_mixtures(keys, queries, moment):
    """Per frequency how combined keys are mixed of the KV heads', those of most energy as the queries see it first:
    complex [frequencies, combined, kv_heads]; and the inverse. keys: [kv_heads, frequencies, hidden]; queries:
    [heads, frequencies, hidden]."""
    met = energies(queries, moment).unflatten(0, (len(keys), -1)).sum(1)  # [kv_heads, frequencies]
    size = (met / met.mean(0)).clamp(min=1e-3).sqrt().T[:, :, None].to(keys.dtype)
    covariance = torch.einsum("gfh,hi,efi->fge", keys, moment.to(keys.dtype), keys.conj()) * size * size.mT
    _, vectors = torch.linalg.eigh(covariance.to(torch.complex128))
    vectors = vectors.flip(-1).to(keys.dtype)
    return vectors.mH * size.mT, vectors / size


def mean_rotation(distances, base, width):
    """E[exp(i angle * distance)] under each head's attention: complex [heads, frequencies]."""
    angles = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    turns = torch.exp(1j * torch.arange(distances.shape[1], dtype=torch.float64)[:, None] * angles)
    share = distances.double() / distances.double().sum(1, keepdim=True)
    return (share.to(turns.dtype) @ turns).to(torch.complex64)


def root(matrix):
    """The symmetric square root of a positive matrix, and its inverse; directions that hardly matter are kept above a
    floor so that the inverse stays tame."""
    values, vectors = torch.linalg.eigh(matrix.double())
    values = values.clamp(min=values.max() * 1e-6).sqrt()
    return ((vectors * values) @ vectors.T).float(), ((vectors / values) @ vectors.T).float()


def block_diagonal_root(metric):
    halves = [root(m) for m in metric]
    return torch.block_diag(*(h[0] for h in halves)), torch.block_diag(*(h[1] for h in halves))


def convert(model, index, statistics, rank, key_weight=1.0):
    """Layer `index` with a latent of `rank` values. key_weight: how much the keys' part of the error counts against
    the values', each relative to its own energy."""
    c, moment = model.config, statistics.moment
    group, dim = c.heads // c.kv_heads, c.head_dim
    keys = as_complex(model.layer(index, "attn_k"), c.kv_heads)
    queries = as_complex(model.layer(index, "attn_q"), c.heads)
    mixed, back_of = key_mixtures(keys, queries, moment)
    combined = torch.einsum("fjg,gfh->jfh", mixed, keys)  # by energy
    # A score is Re(conj(key) query).
    of_head = back_of.conj().repeat_interleave(group, 1)  # [frequencies, heads, combined]
    rope_q = of_head[:, :, 0].T[..., None] * queries
    plain_q = queries * mean_rotation(statistics.distances, c.rope_base, dim)[..., None]

    # What meets the rest of the keys: E[u u^T] of the queries as they appear there; and of the values, the output.
    rest = as_pairs(combined[1:]).flatten(0, 2)
    met = as_pairs(torch.einsum("fnj,nfh->njfh", of_head[:, :, 1:], plain_q)).flatten(1, 3)
    key_metric = torch.einsum("nah,hi,nbi->ab", met, moment, met)
    output = model.layer(index, "attn_output").unflatten(1, (c.kv_heads, group, dim))
    value_metric = torch.einsum("ogna,ognb->gab", output, output)
    values = model.layer(index, "attn_v")
    roots = [root(key_metric), block_diagonal_root(value_metric)]
    parts = [roots[0][0] @ rest, roots[1][0] @ values]
    energy = [torch.einsum("ah,hi,ai->", p, moment, p) for p in parts]
    scale = [(key_weight / energy[0]) ** 0.5, energy[1] ** -0.5]
    both = torch.cat([p * s for p, s in zip(parts, scale)])
    _, vectors = torch.linalg.eigh((both @ moment @ both.T).double())
    basis = vectors.flip(-1)[:, :rank].float()
    latent = basis.T @ both  # c = latent h
    back = basis.split([len(rest), len(values)])
    rest_back = (roots[0][1] @ back[0] / scale[0]).unflatten(0, (c.kv_heads - 1, -1, 2))
    values_back = (roots[1][1] @ back[1] / scale[1]).unflatten(0, (c.kv_heads, dim))

    rest_back = torch.complex(rest_back[:, :, 0], rest_back[:, :, 1])
    key_back = as_pairs(torch.einsum("fgj,jfr->gfr", back_of[:, :, 1:], rest_back)).flatten(1, 2)
    size = torch.einsum("rh,hi,ri->", latent, moment, latent) / rank
    small = (INPUT * c.eps / size) ** 0.5
    q = torch.cat((as_pairs(plain_q).flatten(1, 2), as_pairs(rope_q).flatten(1, 2)), 1).flatten(0, 1) * 2 ** 0.5
    unit = size ** -0.5  # latents of about one, as f16 likes them
    return Latent(q=q, kv_a=torch.cat((latent * small, as_pairs(combined[0]).flatten(0, 1))),
                  norm=torch.full((rank,), float(c.eps ** 0.5 * unit / small)),
                  k_b=(key_back / unit).transpose(1, 2).repeat_interleave(group, 0),
                  v_b=(values_back / unit).repeat_interleave(group, 0), output=model.layer(index, "attn_output"))


def mixed_values(model, weights, h):
    """What the heads of the converted layer give over normed rows h, as DeepSeek's definition has it: nothing
    absorbed."""
    c, rank = model.config, weights.norm.numel()
    q = (h @ weights.q.T).unflatten(-1, (c.heads, -1)).transpose(1, 2)
    row = h @ weights.kv_a.T
    latent = rms_norm(row[..., :rank], weights.norm, c.eps)[:, None]
    k = torch.cat((latent @ weights.k_b, turn(row[:, None, :, rank:], c.rope_base).expand(-1, c.heads, -1, -1)), -1)
    q = torch.cat((q[..., :c.head_dim], turn(q[..., c.head_dim:], c.rope_base)), -1)
    weigh = softmax_weights(q, k, (2 * c.head_dim) ** -0.5)
    return (weigh @ (latent @ weights.v_b.transpose(-1, -2))).transpose(1, 2).flatten(2)


def attention(model, weights, h):
    """The attention part of the converted layer over normed rows h."""
    return mixed_values(model, weights, h) @ weights.output.T
