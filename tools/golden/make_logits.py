#!/usr/bin/env python3
"""Makes tests/data/golden/*.golden: what each model should answer, computed without Kvasir.

The GGUF's tensors are dequantised to f32 by the `gguf` package and put into transformers' own model,
which runs in f32 on the CPU. What the GGUF converter changed is undone first:

- llama: rows of the q and k projections are interleaved for rotation in pairs; transformers rotates halves.
- gemma3: norm weights have 1 added.

    tools/golden/make_logits.py [--check] [smollm2|gemma|qwen-0.5b|qwen-1.5b] ...

--check also lets each model go on from a short prompt and prints what it says. `make goldens` runs this in
.venv-peers, which holds torch and transformers.
"""

import argparse
import pathlib
import sys

import gguf
import numpy as np
import torch
import transformers

import golden_file
import text_tokens

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests" / "data" / "golden"
FILES = {
    "smollm2": "smollm2-135m-instruct-q4_1",
    "gemma": "gemma-3-270m-q4_k_m",
    "qwen-0.5b": "qwen2.5-coder-0.5b-instruct-q4_k_m",
    "qwen-1.5b": "qwen2.5-coder-1.5b-instruct-q4_k_m",
}
POSITIONS = 1152
TOP = 64
THREADS = 2
PROMPT = "The capital of France is"

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GEMMA3_LAYER_NAMES = LAYER_NAMES | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
GEMMA3_LOCAL_ROPE_BASE = 10000.0
GEMMA3_PATTERN = 6  # every sixth layer attends to everything


def common_config(meta, arch, tensors):
    def get(key, default=None):
        return meta.get(f"{arch}.{key}", default)

    heads = get("attention.head_count")
    return {
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "hidden_size": get("embedding_length"),
        "intermediate_size": get("feed_forward_length"),
        "num_hidden_layers": get("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": get("attention.head_count_kv", heads),
        "head_dim": get("attention.key_length", get("embedding_length") // heads),
        "max_position_embeddings": get("context_length"),
        "rms_norm_eps": get("attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": "output.weight" not in tensors,
        "attn_implementation": "eager",
    }


def build_config(meta, tensors):
    arch = meta["general.architecture"]
    common = common_config(meta, arch, tensors)
    base = meta[f"{arch}.rope.freq_base"]
    if arch == "gemma3":
        layers = range(common["num_hidden_layers"])
        kinds = ["full_attention" if (i + 1) % GEMMA3_PATTERN == 0 else "sliding_attention" for i in layers]
        return transformers.Gemma3TextConfig(
            **common,
            layer_types=kinds,
            sliding_window=meta["gemma3.attention.sliding_window"],
            query_pre_attn_scalar=common["head_dim"],
            hidden_activation="gelu_pytorch_tanh",
            rope_parameters={
                "full_attention": {"rope_type": "default", "rope_theta": base},
                "sliding_attention": {"rope_type": "default", "rope_theta": GEMMA3_LOCAL_ROPE_BASE},
            },
        )
    config = {"llama": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config}[arch]
    return config(**common, rope_parameters={"rope_type": "default", "rope_theta": base})


def halves_from_pairs(weight, heads):
    """Undoes the converter's interleaving of q and k rows: [heads, d/2, 2] becomes [heads, 2, d/2]."""
    rows = weight.shape[0]
    split = weight.reshape(heads, rows // heads // 2, 2, *weight.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(weight.shape)


def state_entry(name, weight, arch, config):
    """Name and value of one GGUF tensor in transformers' terms."""
    stem, suffix = name.rsplit(".", 1)
    if stem in TOP_NAMES:
        target = TOP_NAMES[stem]
    else:
        _, layer, part = stem.split(".")
        names = GEMMA3_LAYER_NAMES if arch == "gemma3" else LAYER_NAMES
        target = f"model.layers.{layer}.{names[part]}"
        if arch == "llama" and part in ("attn_q", "attn_k"):
            heads = config.num_attention_heads if part == "attn_q" else config.num_key_value_heads
            weight = halves_from_pairs(weight, heads)
    if arch == "gemma3" and stem.endswith("_norm"):
        weight = weight - 1.0
    return f"{target}.{suffix}", torch.from_numpy(np.array(weight, dtype=np.float32))


def load_model(path):
    """Metadata of the file and transformers' model with its weights in f32."""
    reader = gguf.GGUFReader(path)
    meta = {key: field.contents() for key, field in reader.fields.items()}
    arch = meta["general.architecture"]
    names = {tensor.name for tensor in reader.tensors}
    config = build_config(meta, names)
    classes = {
        "llama": transformers.LlamaForCausalLM,
        "qwen2": transformers.Qwen2ForCausalLM,
        "gemma3": transformers.Gemma3ForCausalLM,
    }
    model = classes[arch](config).float().eval()
    state = {}
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        key, value = state_entry(tensor.name, values, arch, config)
        state[key] = value
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True, assign=True)
    model.tie_weights()
    return meta, model


def continue_text(meta, model, count=24):
    """Greedy continuation of PROMPT, as the pieces of the vocabulary."""
    ids = text_tokens.encode(meta, PROMPT)
    with torch.inference_mode():
        for _ in range(count):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    pieces = "".join(meta["tokenizer.ggml.tokens"][i] for i in ids)
    return pieces.replace("\u0120", " ").replace("\u010a", "\n").replace("\u2581", " ")


def make_one(name, check):
    stem = FILES[name]
    meta, model = load_model(ROOT / "models" / f"{stem}.gguf")
    if check:
        print(f"{name}: {continue_text(meta, model)!r}")
    text = (GOLDEN / "text.txt").read_text(encoding="utf-8")
    tokens = text_tokens.encode(meta, text)[:POSITIONS]
    if len(tokens) < POSITIONS:
        raise ValueError(f"{name}: the text has {len(tokens)} tokens, {POSITIONS} are needed")
    with torch.inference_mode():
        logits = model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()
    golden = golden_file.make(tokens, logits, TOP)
    golden_file.write(GOLDEN / f"{stem}.golden", golden)
    print(f"{name}: {POSITIONS} positions, perplexity {golden.perplexity():.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(FILES))
    parser.add_argument("--check", action="store_true", help="print a greedy continuation too")
    options = parser.parse_args()
    if unknown := set(options.models) - set(FILES):
        parser.error(f"unknown model: {', '.join(sorted(unknown))}")
    torch.set_num_threads(THREADS)
    for name in FILES:
        if not options.models or name in options.models:
            make_one(name, options.check)
    return 0


if __name__ == "__main__":
    sys.exit(main())
