"""Grouped-query attention as multi-head latent attention, in closed form from calibration statistics.

After TransMLA (arXiv 2502.07864): per rotary frequency the keys of all KV heads are turned among themselves (which
commutes with RoPE) so that one combined head holds most of their energy; it keeps RoPE and becomes the shared key. What
is left of the keys loses RoPE and is factorised together with the values.

Two things are ours. A rotation that is dropped is replaced by its mean under the attention of the calibration text, a
complex number per query head and frequency. And the norm that the latent goes through is made the identity: its input
is so small that the norm's epsilon is all it divides by, and its weight brings the scale back."""

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


def by_distance(weights):
    """Sums of causal attention weights [batch, heads, T, T] along diagonals: [heads, T]."""
    total = weights.sum(0)
    size = total.shape[-1]
    distance = (torch.arange(size)[:, None] - torch.arange(size)[None, :]).clamp(min=0)
    flat = torch.zeros(total.shape[0], size)
    return flat.index_add_(1, distance.flatten(), total.flatten(1))


def collect(model, sequences):
    """Statistics of every layer, from the model as it is."""
    c = model.config
    moments = [torch.zeros(c.hidden, c.hidden) for _ in range(c.layers)]
    spread = [torch.zeros(c.heads, sequences.shape[1]) for _ in range(c.layers)]

    def attention(index, h):
        rows = h.flatten(0, 1)
        moments[index] += rows.T @ rows
        return model.attention(index, h, lambda weights: spread[index].add_(by_distance(weights)))

    for sequence in sequences:
        model.logits(sequence[None], attention)
    count = sequences.numel()
    return [Statistics(m / count, s) for m, s in zip(moments, spread)]


def as_complex(weight, heads):
    """Rows of interleaved pairs as [heads, frequencies, 2, hidden]."""
    return weight.unflatten(0, (heads, -1, 2))


def key_turns(keys, moment):
    """Per frequency the orthogonal [kv_heads, kv_heads] whose row j is the j-th principal direction of the KV heads'
    keys, both parts of a pair together: [frequencies, kv_heads, kv_heads]. keys: [kv_heads, frequencies, 2, hidden]."""
    covariance = torch.einsum("gfph,hi,efpi->fge", keys, moment, keys)
    _, vectors = torch.linalg.eigh(covariance.double())
    return vectors.flip(-1).transpose(-1, -2).float()


def mean_rotation(distances, base, width):
    """E[exp(i angle * distance)] under each head's attention: complex [heads, frequencies]."""
    angles = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    turns = torch.exp(1j * torch.arange(distances.shape[1], dtype=torch.float64)[:, None] * angles)
    share = distances.double() / distances.double().sum(1, keepdim=True)
    return (share.to(turns.dtype) @ turns).to(torch.complex64)


def times_mean(queries, means):
    """Query rows [heads, frequencies, 2, hidden] turned and shrunk by the mean rotation between query and key: a score
    is Re(conj(k) q) with q turned forward by the distance."""
    real, imaginary = means.real[..., None], means.imag[..., None]
    a, b = queries[:, :, 0], queries[:, :, 1]
    return torch.stack((a * real - b * imaginary, b * real + a * imaginary), 2)


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
    turns = key_turns(keys, moment)
    turned = torch.einsum("fjg,gfph->jfph", turns, keys)  # combined heads, by energy
    of_head = turns.repeat_interleave(group, 2)  # [frequencies, combined, heads]
    rope_q = torch.einsum("fn,nfph->nfph", of_head[:, 0], queries)
    plain_q = times_mean(queries, mean_rotation(statistics.distances, c.rope_base, dim))

    # What meets the rest of the keys: E[u u^T] of the queries as they appear there; and of the values, the output.
    rest = turned[1:].flatten(0, 2)
    met = torch.einsum("fjn,nfph->njfph", of_head[:, 1:], plain_q).flatten(1, 3)
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

    key_back = torch.einsum("fjg,jfpr->gfpr", turns[:, 1:], rest_back).flatten(1, 2)
    size = torch.einsum("rh,hi,ri->", latent, moment, latent) / rank
    small = (INPUT * c.eps / size) ** 0.5
    q = torch.cat((plain_q.flatten(1, 2), rope_q.flatten(1, 2)), 1).flatten(0, 1) * 2 ** 0.5
    unit = size ** -0.5  # latents of about one, as f16 likes them
    return Latent(q=q, kv_a=torch.cat((latent * small, turned[0].flatten(0, 1))),
                  norm=torch.full((rank,), float(c.eps ** 0.5 * unit / small)),
                  k_b=(key_back / unit).transpose(1, 2).repeat_interleave(group, 0),
                  v_b=(values_back / unit).repeat_interleave(group, 0))


def attention(model, index, weights, h):
    """The converted layer over normed rows h, as DeepSeek's definition has it: nothing absorbed."""
    c, rank = model.config, weights.norm.numel()
    q = (h @ weights.q.T).unflatten(-1, (c.heads, -1)).transpose(1, 2)
    row = h @ weights.kv_a.T
    latent = rms_norm(row[..., :rank], weights.norm, c.eps)[:, None]
    k = torch.cat((latent @ weights.k_b, turn(row[:, None, :, rank:], c.rope_base).expand(-1, c.heads, -1, -1)), -1)
    q = torch.cat((q[..., :c.head_dim], turn(q[..., c.head_dim:], c.rope_base)), -1)
    weigh = softmax_weights(q, k, (2 * c.head_dim) ** -0.5)
    out = (weigh @ (latent @ weights.v_b.transpose(-1, -2))).transpose(1, 2).flatten(2)
    return out @ model.layer(index, "attn_output").T
