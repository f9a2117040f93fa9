#!/usr/bin/env python3
"""Writes an EAGLE-3 head as a GGUF file of architecture eagle3, as llama.cpp reads it.

Reads a safetensors file, or a folder with model.safetensors, and config.json beside it or the file's own metadata.
The tokenizer, and what the configuration leaves out, come from the model that the head drafts for. Names and keys are
those of llama.cpp's conversion/llama.py and src/models/eagle3.cpp: rows of q and k are put in the order that turns
neighbouring values, and d2t, offsets in safetensors files, becomes whole ids.

  .venv/bin/python tools/head_to_gguf.py eagle3.safetensors models/smollm2-135m-instruct-q4_1.gguf head.gguf
"""

import argparse
import json
import pathlib
import struct
import sys

import gguf
import numpy as np

ARCH = "eagle3"
LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "hidden_norm.weight": "attn_norm_2.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
OTHERS = {
    "fc.weight": "fc.weight",
    "input_norm.weight": "enc.output_norm.weight",
    "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "embed_tokens.weight": "token_embd.weight",
}
LEFT_OUT = {"t2d", "d2t"}


def read_safetensors(path):
    """Metadata, and name -> array; BF16 as F32, which holds its values."""
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = file.read()
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        raw = data[begin:end]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
        else:
            kinds = {"F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "BOOL": "?"}
            if entry["dtype"] not in kinds:
                sys.exit(f"{path}: tensor {name} is of type {entry['dtype']}, which is not converted")
            values = np.frombuffer(raw, kinds[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return metadata, tensors


def opened(config):
    """Objects within the configuration, as if their values stood in it."""
    flat = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat = {**opened(value), **flat}
        elif value is not None:
            flat[key] = value
    return flat


def interleaved(weight, head_dim):
    """Rows (first values of a head's pairs, then the second ones) as neighbours."""
    rows, width = weight.shape
    return weight.reshape(rows // head_dim, 2, head_dim // 2, width).swapaxes(1, 2).reshape(rows, width)


class Head:
    def __init__(self, path, target):
        file = path / "model.safetensors" if path.is_dir() else path
        self.file = file
        if not file.exists():
            sys.exit(f"{file}: there is no such file")
        metadata, self.tensors = read_safetensors(file)
        beside = file.parent / "config.json"
        self.config = opened(json.loads(beside.read_text())) if beside.exists() else dict(metadata)
        if beside.exists():
            self.add_defaults()
        self.target = target
        self.arch = target.fields["general.architecture"].contents()

    def add_defaults(self):
        """What transformers' LlamaConfig has where config.json says nothing, and by it vLLM and llama.cpp."""
        if "hidden_size" in self.config and "num_attention_heads" in self.config:
            self.config.setdefault("head_dim", self.config["hidden_size"] // self.config["num_attention_heads"])
        self.config.setdefault("rope_theta", 10000.0)
        self.config.setdefault("rms_norm_eps", 1e-6)
        if self.config.get("speculators_model_type") == "eagle3":
            self.config.setdefault("norm_before_residual", True)

    def of_target(self, key, default=None):
        field = self.target.fields.get(f"{self.arch}.{key}")
        return default if field is None else field.contents()

    def number(self, names, default):
        for name in names:
            if name in self.config:
                return float(self.config[name])
        return default

    def rope_scaling(self):
        """As in a config.json; none: {}."""
        kind = self.config.get("rope_type", self.config.get("type") if "factor" in self.config else None)
        if kind in (None, "default", "none"):
            return {}
        kinds = {"factor": float, "low_freq_factor": float, "high_freq_factor": float,
                 "original_max_position_embeddings": int}
        return {"rope_type": kind} | {key: of(self.config[key]) for key, of in kinds.items() if key in self.config}

    def flag(self, name):
        return str(self.config.get(name, False)).lower() == "true"

    def tensor(self, name):
        for prefix in ("", "model."):
            for layer in ("midlayer.", "layers.0."):
                full = prefix + name.replace("LAYER.", layer)
                if full in self.tensors:
                    return self.tensors[full]
        sys.exit(f"{self.file}: there is no tensor {name.replace('LAYER.', 'midlayer.')}: no EAGLE-3 head?")

    def fused_layers(self):
        ids = self.config.get("eagle_aux_hidden_state_layer_ids", self.config.get("aux_layers"))
        if isinstance(ids, str):
            ids = [int(i) for i in ids.split(",")]
        layers = self.of_target("block_count")
        return ids or [2, layers // 2, layers - 3]


def add_keys(writer, head):
    q, k = head.tensor("LAYER.self_attn.q_proj.weight"), head.tensor("LAYER.self_attn.k_proj.weight")
    gate = head.tensor("LAYER.mlp.gate_proj.weight")
    width = gate.shape[1]
    target_heads = head.of_target("attention.head_count")
    head_dim = int(head.number(["head_dim"], head.of_target("attention.key_length", width // target_heads)))
    tokens = len(head.target.fields["tokenizer.ggml.tokens"].data)
    writer.add_name(head.file.stem)
    writer.add_vocab_size(tokens)
    writer.add_context_length(head.of_target("context_length"))
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(gate.shape[0])
    writer.add_head_count(q.shape[0] // head_dim)
    writer.add_head_count_kv(k.shape[0] // head_dim)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(head.number(["rope_theta", "rope_base"], head.of_target("rope.freq_base", 10000.0)))
    eps = head.of_target("attention.layer_norm_rms_epsilon")
    writer.add_layer_norm_rms_eps(head.number(["rms_norm_eps", "norm_eps"], eps))
    writer.add_array(f"{ARCH}.target_layers", [int(i) for i in head.fused_layers()])
    writer.add_uint32(f"{ARCH}.target_hidden_size", int(head.number(["target_hidden_size"], width)))
    writer.add_bool(f"{ARCH}.norm_before_residual", head.flag("norm_before_residual"))
    writer.add_bool(f"{ARCH}.norm_before_fc", head.flag("norm_before_fc"))
    return head_dim


def llama3_factors(rope, head_dim, base):
    """Divisors of each pair's frequency (Llama 3.1's apply_scaling): long waves are slowed, short ones are not."""
    turns = rope["original_max_position_embeddings"] / (2 * np.pi * base ** (np.arange(0, head_dim, 2) / head_dim))
    low, high = rope.get("low_freq_factor", 1.0), rope.get("high_freq_factor", 4.0)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / (kept + (1 - kept) / rope["factor"])).astype("<f4")


def add_rope_scaling(writer, head, head_dim):
    rope = head.rope_scaling()
    kind = rope.get("rope_type")
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(rope["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if kind == "llama3":
        base = head.number(["rope_theta", "rope_base"], head.of_target("rope.freq_base", 10000.0))
        writer.add_tensor("rope_freqs.weight", llama3_factors(rope, head_dim, base))
    if kind not in (None, "linear", "yarn", "llama3"):
        sys.exit(f"{head.file}: RoPE scaling {kind} is not converted; linear, yarn and llama3 are")


def add_tokenizer(writer, target):
    for name, field in target.fields.items():
        if not name.startswith("tokenizer."):
            continue
        array = field.types[0] == gguf.GGUFValueType.ARRAY
        writer.add_key_value(name, field.contents(), field.types[0], field.types[-1] if array else None)


def add_tensors(writer, head, head_dim):
    for full, values in head.tensors.items():
        name = full.removeprefix("model.")
        layer = next((name.removeprefix(p) for p in ("midlayer.", "layers.0.") if name.startswith(p)), None)
        if name in LEFT_OUT:
            continue
        if layer in LAYER:
            new = "blk.0." + LAYER[layer]
        elif name in OTHERS:
            new = OTHERS[name]
        else:
            sys.exit(f"{head.file}: tensor {full} has no place in architecture {ARCH}")
        if layer in ("self_attn.q_proj.weight", "self_attn.k_proj.weight"):
            values = interleaved(values, head_dim)
        # Norms are F32 in every file of llama.cpp's.
        writer.add_tensor(new, np.ascontiguousarray(values.astype("<f4") if values.ndim == 1 else values))
    if "d2t" not in head.tensors:
        return
    ids = head.tensors["d2t"].astype(np.int64)
    ids = ids + np.arange(ids.size)
    writer.add_tensor("d2t", ids, raw_dtype=gguf.GGMLQuantizationType.I64)
    if not any(name.endswith("lm_head.weight") for name in head.tensors):
        writer.add_tensor("output.weight", rows_of_target(head.target, ids))


def rows_of_target(target, ids):
    """Rows of the model's own output head: llama.cpp takes it whole or not at all."""
    tensors = {t.name: t for t in target.tensors}
    output = tensors.get("output.weight", tensors["token_embd.weight"])
    return gguf.quants.dequantize(output.data[ids], output.tensor_type).astype("<f4")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("head", type=pathlib.Path, help="safetensors file or folder")
    parser.add_argument("model", type=pathlib.Path, help="GGUF file that the head drafts for")
    parser.add_argument("output", type=pathlib.Path, help="GGUF file to write")
    options = parser.parse_args()
    head = Head(options.head, gguf.GGUFReader(options.model))
    for flag in ("fc_norm", "norm_output"):
        if head.flag(flag):
            sys.exit(f"{head.file}: {flag} is set, and architecture {ARCH} has no key for it")
    writer = gguf.GGUFWriter(options.output, ARCH)
    head_dim = add_keys(writer, head)
    add_rope_scaling(writer, head, head_dim)
    add_tokenizer(writer, head.target)
    add_tensors(writer, head, head_dim)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
