#!/usr/bin/env python3
"""Writes an EAGLE-3 head that nobody trained, for tests: the target's last layer over its own input, beside the next
token's embedding at no weight. It guesses badly, but not at random.

    make_eagle3_head.py MODEL.gguf HEAD.safetensors
"""

import json
import struct
import sys

import gguf
import numpy as np

VOCABULARY = 2048


def halves_first(weight, heads):
    """Rows of a GGUF q or k matrix, whose heads turn neighbouring values, in the order that turns halves."""
    rows, width = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)


def head_of(reader):
    """Names as in EAGLE-3's own files -> arrays."""
    tensors = {t.name: t for t in reader.tensors}

    def value(key):
        return reader.fields[f"llama.{key}"].contents()

    def weights(name):
        tensor = tensors[name]
        return gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)

    layers, width = value("block_count"), value("embedding_length")
    last = {name: weights(f"blk.{layers - 1}.{name}.weight") for name in
            ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")}
    ids = np.arange(VOCABULARY) * 3
    attention = {"q": halves_first(last["attn_q"], value("attention.head_count")),
                 "k": halves_first(last["attn_k"], value("attention.head_count_kv")), "v": last["attn_v"]}
    head = {f"midlayer.self_attn.{name}_proj.weight": np.concatenate([np.zeros_like(w), w], 1)
            for name, w in attention.items()}
    head |= {
        "fc.weight": np.concatenate([np.zeros((width, 2 * width)), np.eye(width)], 1),
        "midlayer.input_layernorm.weight": np.ones(width),
        "midlayer.hidden_norm.weight": last["attn_norm"],
        "midlayer.self_attn.o_proj.weight": last["attn_output"],
        "midlayer.post_attention_layernorm.weight": last["ffn_norm"],
        "midlayer.mlp.gate_proj.weight": last["ffn_gate"],
        "midlayer.mlp.up_proj.weight": last["ffn_up"],
        "midlayer.mlp.down_proj.weight": last["ffn_down"],
        "norm.weight": weights("output_norm.weight"),
    }
    head = {name: np.ascontiguousarray(array, dtype=np.float16) for name, array in head.items()}
    head["d2t"] = (ids - np.arange(VOCABULARY)).astype(np.int64)
    notes = {"kind": "eagle3", "heads": value("attention.head_count"), "kv_heads": value("attention.head_count_kv"),
             "head_dim": width // value("attention.head_count"), "rope_base": value("rope.freq_base"),
             "norm_eps": value("attention.layer_norm_rms_epsilon"), "aux_layers": f"2,{layers // 2},{layers - 1}"}
    return head, {key: str(note) for key, note in notes.items()}


def main():
    head, notes = head_of(gguf.GGUFReader(sys.argv[1]))
    header, at = {"__metadata__": notes}, 0
    for name, array in head.items():
        kind = {"float16": "F16", "int64": "I64"}[array.dtype.name]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    with open(sys.argv[2], "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for array in head.values():
            out.write(array.tobytes())


if __name__ == "__main__":
    main()
