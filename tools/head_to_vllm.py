#!/usr/bin/env python3
"""Writes a draft head as a folder that vLLM loads: model.safetensors and config.json.

vLLM wants in the file what Kvasir takes from the model that the head drafts for:
  Medusa   an output head. It is the model's, with a row for every token: vLLM 0.32 refuses files with a token_map.
  EAGLE-1  no bias of fc, which vLLM's module has not: embeddings of the head's own, moved by what the bias is for fc,
           take its place (in bfloat16 what they give fc is off by 1.8 % for the head in data/heads, in float16 by
           0.2 %). A list of tokens (d2t) is left out: all of the model's are guessed.
  EAGLE-3  the output head's rows of the tokens of d2t, where the file has none

  .venv/bin/python tools/head_to_vllm.py data/heads/smollm2-135m-instruct.eagle.safetensors \\
    models/smollm2-135m-instruct-q4_1.gguf build/smollm2-eagle
  vllm serve HuggingFaceTB/SmolLM2-135M-Instruct \\
    --speculative-config '{"method": "eagle", "model": "build/smollm2-eagle", "num_speculative_tokens": 2}'
"""

import argparse
import json
import pathlib
import sys

import gguf
import numpy as np

import head_to_gguf
import safetensors_file

KINDS = {"F": {4: "F32", 2: "F16"}, "I": {8: "I64", 4: "I32"}, "B": {1: "BOOL"}}


def rows_of_model(target, names):
    tensors = {t.name: t for t in target.tensors}
    tensor = next(tensors[name] for name in names if name in tensors)
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type)


def embeddings(head):
    return rows_of_model(head.target, ["token_embd.weight"])


def output_rows(head):
    return rows_of_model(head.target, ["output.weight", "token_embd.weight"])


def llama_config(head, tensors, layer):
    """What shapes, the file's own configuration and the model say of the layer."""
    inner, width = tensors[layer + "mlp.gate_proj.weight"].shape
    head_dim = int(head.number(["head_dim"], head.of_target("attention.key_length") or
                               width // head.of_target("attention.head_count")))
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": width,
        "intermediate_size": inner, "head_dim": head_dim, "num_hidden_layers": 1,
        "num_attention_heads": tensors[layer + "self_attn.q_proj.weight"].shape[0] // head_dim,
        "num_key_value_heads": tensors[layer + "self_attn.k_proj.weight"].shape[0] // head_dim,
        "max_position_embeddings": head.of_target("context_length"), "tie_word_embeddings": False,
        "rms_norm_eps": head.number(["rms_norm_eps", "norm_eps"],
                                    head.of_target("attention.layer_norm_rms_epsilon")),
        "rope_theta": head.number(["rope_theta", "rope_base"], head.of_target("rope.freq_base", 10000.0)),
        "vocab_size": len(embeddings(head)), "rope_scaling": head.rope_scaling() or None,
        "attention_bias": layer + "self_attn.q_proj.bias" in tensors,
    } | {key: head.config[key] for key in ("layer_types", "sliding_window") if key in head.config}


def without_bias(head, tensors):
    """fc(e, h) + b = fc(e + d, h), where fc's part for embeddings takes d to b."""
    width = tensors["fc.weight"].shape[0]
    entry, bias = tensors["fc.weight"][:, :width].astype(np.float64), tensors.pop("fc.bias").astype(np.float64)
    moved = np.linalg.lstsq(entry, bias, rcond=None)[0]
    left = np.abs(entry @ moved - bias).max()
    own = tensors.get("embed_tokens.weight", embeddings(head))
    print(f"fc.bias, {np.abs(bias).max():.3g} at most, is in embed_tokens.weight now, all but {left:.1g}: embeddings, "
          f"{np.sqrt((own**2).mean()):.3g} large, are moved by {np.sqrt((moved**2).mean()):.3g}")
    return tensors | {"embed_tokens.weight": (own + moved).astype(np.float32)}


def eagle1(head, tensors):
    tensors.pop("d2t", None)
    if "fc.bias" in tensors:
        tensors = without_bias(head, tensors)
    return tensors, llama_config(head, tensors, "layers.0.")


def eagle3(head, tensors):
    layer = "midlayer." if any(name.startswith("midlayer.") for name in tensors) else "layers.0."
    if "d2t" in tensors and "lm_head.weight" not in tensors:
        ids = tensors["d2t"] + np.arange(len(tensors["d2t"]))
        tensors["lm_head.weight"] = output_rows(head)[ids].astype(np.float16)
    config = llama_config(head, tensors, layer) | {"eagle_aux_hidden_state_layer_ids": [int(i) for i in head.fused_layers()]}
    config["draft_vocab_size"] = len(tensors["d2t"]) if "d2t" in tensors else config["vocab_size"]
    return tensors, config | {flag: True for flag in ("norm_before_residual", "norm_before_fc", "fc_norm",
                                                      "norm_output") if head.flag(flag)}


def medusa(head, tensors):
    output = output_rows(head)
    tensors.pop("token_map", None)
    heads = sum(name.startswith("blocks.") and name.endswith(".layers.0.weight") for name in tensors)
    own = "lm_heads.0.weight" in tensors
    if not own and "lm_head.weight" not in tensors:
        tensors["lm_head.weight"] = output.astype(np.float16)
    rows = len(tensors["lm_heads.0.weight" if own else "lm_head.weight"])
    if rows != len(output):
        sys.exit(f"{head.file}: its output head has {rows} rows, and vLLM wants one for each of {len(output)} tokens")
    return tensors, {
        "architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": output.shape[1],
        "vocab_size": len(output), "truncated_vocab_size": len(output), "num_heads": heads,
        "num_hidden_layers": sum(name.startswith("blocks.0.") and name.endswith(".weight") for name in tensors),
        "medusa_fc_bias": "blocks.0.layers.0.bias" in tensors, "original_lm_head": not own,
    }


def converted(head):
    tensors = {name.removeprefix("model."): values for name, values in head.tensors.items()}
    if "blocks.0.layers.0.weight" in tensors:
        return medusa(head, tensors)
    if "midlayer.self_attn.q_proj.weight" in tensors or "layers.0.hidden_norm.weight" in tensors:
        return eagle3(head, tensors)
    if "fc.weight" in tensors and "layers.0.self_attn.q_proj.weight" in tensors:
        return eagle1(head, tensors)
    sys.exit(f"{head.file}: there is neither blocks.0.layers.0.weight (Medusa) nor fc.weight with a layer (EAGLE)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("head", type=pathlib.Path, help="safetensors file or folder")
    parser.add_argument("model", type=pathlib.Path, help="GGUF file that the head drafts for")
    parser.add_argument("output", type=pathlib.Path, help="folder to write")
    options = parser.parse_args()
    tensors, config = converted(head_to_gguf.Head(options.head, gguf.GGUFReader(options.model)))
    options.output.mkdir(parents=True, exist_ok=True)
    typed = {name: (KINDS[values.dtype.kind.upper()][values.itemsize], values) for name, values in tensors.items()}
    # vLLM asks for the file's format.
    safetensors_file.write(options.output / "model.safetensors", typed, {"format": "pt"})
    (options.output / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    print(f"{options.output}: {config['architectures'][0]}, {len(tensors)} tensors")


if __name__ == "__main__":
    main()
