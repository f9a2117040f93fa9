"""Random weights that make every part of a small model matter, and that compress well.

Values lie on a grid of a sixth of their standard deviation: five bits each, exact in f32 and in f16.
"""

import hashlib
import math

import torch

STEPS = 6  # grid steps per standard deviation


def generator(*names):
    digest = hashlib.sha256("/".join(names).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def grid_normal(shape, deviation, random):
    """Normal numbers rounded to the grid; the deviation is rounded to a power of two."""
    step = 2.0 ** round(math.log2(deviation / STEPS))
    values = torch.randn(shape, generator=random) * (deviation / step)
    return values.round().clamp(-31, 31) * step


def deviation_of(seed, name, parameter, embedding_scale):
    """What keeps the numbers of every layer near one, with attention sharp enough that positions show."""
    if name.endswith("embed_tokens.weight"):
        return 1.0 / embedding_scale
    if parameter.ndim == 1:  # sinks of attention
        return 1.0
    if "router" in name or name.endswith("mlp.gate.weight"):  # sharp: of near ties, the last chosen has little weight
        return (1.5 if seed == "deepseek-v3" else 4.0) / math.sqrt(parameter.shape[1])  # sigmoids saturate
    if parameter.ndim == 3:  # experts; gpt-oss has inputs in rows, and values that its limits cut
        if seed != "gpt-oss":
            return 1.0 / math.sqrt(parameter.shape[2])
        return (3.0 if "gate_up" in name else 0.1) / math.sqrt(parameter.shape[1])
    sharp = any(part in name for part in ("q_proj", "k_proj", "qkv_proj", "q_b_proj"))
    gain = 1.5 if sharp else 3.0 if "lm_head" in name else 1.0
    return gain / math.sqrt(parameter.shape[1])


def randomise(model, seed, embedding_scale, norm_center):
    """Fills all parameters; `norm_center` is what norm weights are near to."""
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            random = generator(seed, name)
            if name.endswith("bias"):
                parameter.copy_(grid_normal(parameter.shape, 0.3, random))
            elif "norm" in name:
                parameter.copy_(norm_center + grid_normal(parameter.shape, 0.25, random))
            else:
                deviation = deviation_of(seed, name, parameter, embedding_scale)
                parameter.copy_(grid_normal(parameter.shape, deviation, random))
        for name, buffer in sorted(model.named_buffers()):
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(grid_normal(buffer.shape, 0.3, generator(seed, name)))


def random_tokens(seed, count, vocabulary):
    return torch.randint(vocabulary, (count,), generator=generator(seed, "tokens")).tolist()
