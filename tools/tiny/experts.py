"""Experts as the public converter writes them: one tensor for each of gate, up and down of all experts of a layer, and
those that every token passes through apart."""

import re

import numpy as np


def gate_and_up(tiny, value):
    """[experts, 2 ffn, ...] as gate and up; gpt-oss has them in turns, the others one behind the other."""
    if tiny.arch == "gpt-oss":
        return value[:, ::2], value[:, 1::2]
    return np.split(value, 2, axis=1)


def renamed(tiny, name, value):
    """(GGUF's name, values) of what a parameter of a layer's experts becomes; nothing for other parameters."""
    found = re.fullmatch(r"model\.layers\.(\d+)\.(?:mlp|block_sparse_moe|shared_mlp)\.(.*)", name)
    if found is None:
        return
    layer, part = f"blk.{found[1]}.", found[2]
    # gpt-oss multiplies rows with its matrices, the others have an output in each row.
    turned = value.swapaxes(1, 2) if tiny.arch == "gpt-oss" and value.ndim == 3 else value
    if part in ("gate.weight", "router.weight", "router.bias"):
        yield layer + "ffn_gate_inp." + part.split(".")[-1], value
    elif part == "gate.e_score_correction_bias":
        yield layer + "exp_probs_b.bias", value
    elif part == "shared_expert_gate.weight":
        yield layer + "ffn_gate_inp_shexp.weight", value[0]
    elif part.startswith("experts.gate_up_proj"):
        for which, half in zip(("gate", "up"), gate_and_up(tiny, turned)):
            yield f"{layer}ffn_{which}_exps.{'bias' if part.endswith('bias') else 'weight'}", half
    elif part.startswith("experts.down_proj"):
        yield f"{layer}ffn_down_exps.{'bias' if part.endswith('bias') else 'weight'}", turned
    elif part == "input_linear.weight":
        for which, half in zip(("gate", "up"), np.split(value, 2)):
            yield f"{layer}ffn_{which}_shexp.weight", half
    elif part == "output_linear.weight":
        yield layer + "ffn_down_shexp.weight", value


def write_keys(writer, config):
    """The keys that every architecture with experts has."""
    fields = config.to_dict()
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    writer.add_expert_count(next(fields[name] for name in names if name in fields))
    writer.add_expert_used_count(config.num_experts_per_tok)
    if "moe_intermediate_size" in fields:
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    shared = fields.get("shared_expert_intermediate_size") or fields.get("shared_intermediate_size")
    if shared:
        writer.add_expert_shared_feed_forward_length(shared)
