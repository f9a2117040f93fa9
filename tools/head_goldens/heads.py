"""The heads: in each public layout one with random weights, its tensors and its config.json as such files have them.

Names, shapes and keys are those of vLLM's llama_eagle.py, llama_eagle3.py and medusa.py, and of files that people
publish: the authors' of EAGLE-1 and EAGLE-3 (a config.json without rope_theta), SpecForge's, the speculators library's,
Medusa's authors'.
"""

import dataclasses
import math
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tiny"))
import vocabulary  # noqa: E402
import weights  # noqa: E402

WIDTH, HEADS, KV_HEADS, HEAD_DIM, FFN, LAYERS, CONTEXT = 32, 2, 1, 32, 32, 7, 128
EPS = 1e-5
DRAFT_TOKENS = 96
MEDUSA_HEADS = 3
DEFAULT_LAYERS = [2, LAYERS // 2, LAYERS - 3]  # what vLLM fuses where a file does not say


@dataclasses.dataclass
class Head:
    """`kind`: the method that vLLM loads it with. `points`: layers in front of which the features are taken; None:
    what the target's output head reads. `gguf`: llama.cpp's converter writes it as well; `pickled`: so does torch.save."""

    name: str
    kind: str
    config: dict
    tensors: dict
    points: list | None = None
    file: str = "model.safetensors"
    gguf: bool = False
    pickled: bool = False


def matrix(head, name, rows, columns, gain=1.0):
    return weights.grid_normal((rows, columns), gain / math.sqrt(columns), weights.generator("heads", head, name))


def norm(head, name, size=WIDTH):
    return 1.0 + weights.grid_normal((size,), 0.25, weights.generator("heads", head, name))


def bias(head, name, size):
    return weights.grid_normal((size,), 0.3, weights.generator("heads", head, name))


def layer(head, prefix, inputs):
    """A Llama layer without the norms in front of attention, which the kinds of heads differ in."""
    attention = {"q": HEADS * HEAD_DIM, "k": KV_HEADS * HEAD_DIM, "v": KV_HEADS * HEAD_DIM}
    gains = {"q": 2.0, "k": 2.0, "v": 1.0}
    tensors = {f"{prefix}self_attn.{part}_proj.weight": matrix(head, part, rows, inputs, gains[part])
               for part, rows in attention.items()}
    return tensors | {
        f"{prefix}self_attn.o_proj.weight": matrix(head, "o", WIDTH, HEADS * HEAD_DIM),
        f"{prefix}mlp.gate_proj.weight": matrix(head, "gate", FFN, WIDTH),
        f"{prefix}mlp.up_proj.weight": matrix(head, "up", FFN, WIDTH),
        f"{prefix}mlp.down_proj.weight": matrix(head, "down", WIDTH, FFN),
        f"{prefix}post_attention_layernorm.weight": norm(head, "ffn_norm"),
    }


def fused_layer(head, prefix):
    return layer(head, prefix, 2 * WIDTH) | {
        f"{prefix}input_layernorm.weight": norm(head, "input_layernorm"),
        f"{prefix}hidden_norm.weight": norm(head, "hidden_norm"),
    }


def chosen_tokens(head):
    """Ascending ids of the target's, d2t (their offsets) and t2d (a flag for each of the target's tokens)."""
    random = weights.generator("heads", head, "tokens")
    ids = torch.randperm(vocabulary.SIZE, generator=random)[:DRAFT_TOKENS].sort().values
    flags = torch.zeros(vocabulary.SIZE, dtype=torch.bool)
    flags[ids] = True
    return {"d2t": ids - torch.arange(DRAFT_TOKENS), "t2d": flags}


def llama_config(**more):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": WIDTH,
        "intermediate_size": FFN, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "num_hidden_layers": 1, "max_position_embeddings": CONTEXT, "rms_norm_eps": EPS, "tie_word_embeddings": False,
        "vocab_size": vocabulary.SIZE, "torch_dtype": "float16",
    } | more


def eagle1(embeddings):
    """As the authors publish it: embeddings that are the target's, no norms but one, no rope_theta."""
    tensors = {"embed_tokens.weight": embeddings.clone(), "fc.weight": matrix("eagle1", "fc", WIDTH, 2 * WIDTH)}
    return Head("eagle1", "eagle", llama_config(), tensors | layer("eagle1", "layers.0.", WIDTH))


def eagle3(_):
    """As the authors publish it: midlayer, tokens of its own, the layers that nobody names, no rope_theta."""
    name = "eagle3"
    tensors = chosen_tokens(name) | fused_layer(name, "midlayer.") | {
        "fc.weight": matrix(name, "fc", WIDTH, 3 * WIDTH),
        "norm.weight": norm(name, "norm"),
        "lm_head.weight": matrix(name, "lm_head", DRAFT_TOKENS, WIDTH, 3.0),
    }
    config = llama_config(draft_vocab_size=DRAFT_TOKENS)
    return Head(name, "eagle3", config, tensors, DEFAULT_LAYERS, gguf=True)


def speculators(_):
    """The speculators library's: the layer's configuration apart, layers.0, the residual stream normed, a norm
    before fc, Llama 3's RoPE."""
    name = "speculators"
    points = [1, 4, 7]
    tensors = chosen_tokens(name) | fused_layer(name, "layers.0.") | {
        "fc.weight": matrix(name, "fc", WIDTH, 3 * WIDTH),
        "input_norm.weight": norm(name, "input_norm", 3 * WIDTH),
        "norm.weight": norm(name, "norm"),
        "lm_head.weight": matrix(name, "lm_head", DRAFT_TOKENS, WIDTH, 3.0),
        "embed_tokens.weight": matrix(name, "embed_tokens", vocabulary.SIZE, WIDTH, math.sqrt(WIDTH)),
    }
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32}
    config = {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "speculators_version": "0.2.0",
        "draft_vocab_size": DRAFT_TOKENS, "target_hidden_size": WIDTH, "norm_before_residual": True,
        "norm_before_fc": True, "eagle_aux_hidden_state_layer_ids": points,
        "speculators_config": {
            "algorithm": "eagle3", "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 4}],
            "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": "target"}},
        "transformer_layer_config": llama_config(rope_theta=700.0, rope_scaling=scaling),
    }
    return Head(name, "eagle3", config, tensors, points, gguf=True)


def specforge(_):
    """SpecForge's with what EAGLE-3.1 added: a norm per fused layer, the normed row handed on; biases of
    attention and a window, two layers fused, every token guessed by a head of its own."""
    name = "specforge"
    points = [3, 5]
    inner = fused_layer(name, "midlayer.")
    sizes = {"q": HEADS * HEAD_DIM, "k": KV_HEADS * HEAD_DIM, "v": KV_HEADS * HEAD_DIM, "o": WIDTH}
    inner |= {f"midlayer.self_attn.{part}_proj.bias": bias(name, part + "_bias", n) for part, n in sizes.items()}
    tensors = inner | {f"fc_norm.{i}.weight": norm(name, f"fc_norm.{i}") for i in range(len(points))} | {
        "fc.weight": matrix(name, "fc", WIDTH, len(points) * WIDTH),
        "norm.weight": norm(name, "norm"),
        "lm_head.weight": matrix(name, "lm_head", vocabulary.SIZE, WIDTH, 3.0),
    }
    config = llama_config(
        architectures=["LlamaForCausalLMEagle3"], attention_bias=True, draft_vocab_size=vocabulary.SIZE, fc_norm=True,
        norm_output=True, rope_theta=900.0, layer_types=["sliding_attention"], sliding_window=8,
        rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        eagle_config={"eagle_aux_hidden_state_layer_ids": points, "use_aux_hidden_state": True})
    return Head(name, "eagle3", config, tensors, points)


def medusa(_):
    """As vLLM names it: one output head for all, of the target's width in tokens, of which token_map takes rows."""
    name = "medusa"
    tensors = {}
    for i in range(MEDUSA_HEADS):
        for j in range(2):
            tensors[f"blocks.{i}.layers.{j}.weight"] = matrix(name, f"{i}.{j}", WIDTH, WIDTH, 1.5)
            tensors[f"blocks.{i}.layers.{j}.bias"] = bias(name, f"{i}.{j}.bias", WIDTH)
    random = weights.generator("heads", name, "tokens")
    tensors["token_map"] = torch.randperm(vocabulary.SIZE, generator=random)[:DRAFT_TOKENS]
    tensors["lm_head.weight"] = matrix(name, "lm_head", vocabulary.SIZE, WIDTH, 3.0)
    config = {"architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": WIDTH,
              "vocab_size": vocabulary.SIZE, "num_heads": MEDUSA_HEADS, "num_hidden_layers": 2, "medusa_fc_bias": True,
              "original_lm_head": True, "truncated_vocab_size": DRAFT_TOKENS}
    return Head(name, "medusa", config, tensors)


def medusa_authors(_):
    """As Medusa's authors name it, with an output head for each; biases, and keys of their own."""
    name = "medusa-authors"
    tensors = {}
    for i in range(MEDUSA_HEADS):
        tensors[f"{i}.0.linear.weight"] = matrix(name, f"{i}", WIDTH, WIDTH, 1.5)
        tensors[f"{i}.0.linear.bias"] = bias(name, f"{i}.bias", WIDTH)
        tensors[f"{i}.1.weight"] = matrix(name, f"{i}.lm_head", vocabulary.SIZE, WIDTH, 3.0)
    config = {"medusa_num_heads": MEDUSA_HEADS, "medusa_num_layers": 1, "base_model_name_or_path": "target",
              "hidden_size": WIDTH, "medusa_fc_bias": True}
    return Head(name, "medusa", config, tensors, file="medusa_lm_head.safetensors", pickled=True)


def all_heads(embeddings):
    return [make(embeddings) for make in (eagle1, eagle3, speculators, specforge, medusa, medusa_authors)]
