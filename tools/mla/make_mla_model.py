#!/usr/bin/env python3
"""Turns a llama-like GGUF model's grouped-query attention into multi-head latent attention and writes it as a
DeepSeek-V2 file, which Kvasir and llama.cpp open.

    tools/mla/make_mla_model.py MODEL.gguf --calibrate TEXT --held-out TEXT --rank 128 [--rank 64 ...] --out NAME

For each rank writes NAME-<rank>.gguf and prints the perplexity of the held-out text beside the original's, and what a
token's cache row takes. The factorisation is closed-form (latent.py, conversion.py), from some thousand tokens of the
calibration text: a text file, or what `kvasir dump-hidden` wrote. --heal 12 also trains each layer for twelve steps as
it is converted (heal.py), some four minutes of a core for SmolLM2-135M; docs/mla.md has what that gave. Needs
torch, tokenizers and gguf (`make goldens` installs them in .venv-peers).
"""

import argparse
import pathlib
import sys

import gguf
import numpy as np
import torch

import conversion
import latent
from llama_model import LlamaModel, perplexity

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
import text_tokens  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train_heads"))
from hidden_dump import HiddenDump  # noqa: E402

KEPT = ("attn_norm", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")


def metadata(reader):
    return {name: field.contents() for name, field in reader.fields.items()}


def sequences(reader, path, length, count):
    if path.suffix == ".safetensors":
        dump = HiddenDump(path)
        spans = zip(dump.starts[:-1], dump.starts[1:])
        ids = [int(t) for first, last in spans for t in dump.tokens[first:first + (last - first) // length * length]]
    else:
        ids = text_tokens.encode(metadata(reader), path.read_text(errors="replace"))
    count = min(count, len(ids) // length)
    if count == 0:
        sys.exit(f"{path} has {len(ids)} tokens: at least {length} are needed")
    return torch.tensor(ids[:count * length]).reshape(count, length)


def copy_tokenizer(reader, writer):
    for name, field in reader.fields.items():
        if name.startswith("tokenizer."):
            sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub_type)


def write_keys(writer, model, rank, name):
    """As converters write a DeepSeek-V2 without experts: every layer leads."""
    c = model.config
    writer.add_name(name)
    writer.add_block_count(c.layers)
    writer.add_context_length(c.context)
    writer.add_embedding_length(c.hidden)
    writer.add_feed_forward_length(c.ffn)
    writer.add_head_count(c.heads)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(c.eps)
    writer.add_rope_freq_base(c.rope_base)
    writer.add_rope_dimension_count(c.head_dim)
    writer.add_vocab_size(len(model.weights["token_embd.weight"]))
    writer.add_q_lora_rank(0)
    writer.add_kv_lora_rank(rank)
    writer.add_key_length(rank + c.head_dim)
    writer.add_value_length(rank)
    writer.add_key_length_mla(2 * c.head_dim)
    writer.add_value_length_mla(c.head_dim)
    writer.add_leading_dense_block_count(c.layers)
    writer.add_expert_feed_forward_length(c.ffn)
    writer.add_expert_shared_count(0)


def write(model, layers, rank, path, stored):
    """Tensors that stay as they were are copied; those that are new are in format `stored`, but for the cache row's,
    whose small numbers (latent.py) only F32 holds."""
    writer = gguf.GGUFWriter(path, "deepseek2")
    write_keys(writer, model, rank, path.stem)
    copy_tokenizer(model.reader, writer)
    for tensor in model.reader.tensors:
        part = tensor.name.split(".")[-2]
        if not tensor.name.startswith("blk.") or part in KEPT:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    for index, layer in enumerate(layers):
        def add(part, values, kind=stored, index=index):
            array = np.ascontiguousarray(values.numpy())
            packed = gguf.quants.quantize(array, kind)
            writer.add_tensor(f"blk.{index}.{part}.weight", packed, raw_dtype=kind)

        plain = gguf.GGMLQuantizationType.F32
        add("attn_q", layer.q)
        add("attn_kv_a_mqa", layer.kv_a, plain)
        add("attn_kv_a_norm", layer.norm, plain)
        add("attn_k_b", layer.k_b)
        add("attn_v_b", layer.v_b)
        add("attn_output", layer.output)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--calibrate", type=pathlib.Path, required=True, help="text, or a dump of `kvasir dump-hidden`")
    parser.add_argument("--held-out", type=pathlib.Path, required=True, help="text to measure on")
    parser.add_argument("--rank", type=int, action="append", required=True, help="values of a latent; may be repeated")
    parser.add_argument("--out", required=True, help="what the files' names begin with")
    parser.add_argument("--tokens", type=int, default=16384, help="of calibration text (%(default)s)")
    parser.add_argument("--length", type=int, default=512, help="of a held-out sequence (%(default)s)")
    parser.add_argument("--piece", type=int, default=256, help="length of a sequence to learn from (%(default)s)")
    parser.add_argument("--tests", type=int, default=8, help="held-out sequences (%(default)s)")
    parser.add_argument("--key-weight", type=float, default=1.0, help="of keys against values (%(default)s)")
    parser.add_argument("--store", default="Q8_0", help="format of new matrices (%(default)s)")
    parser.add_argument("--heal", type=int, default=0, metavar="STEPS",
                        help="train each layer for so many steps of 8 pieces as it is converted (%(default)s)")
    parser.add_argument("--rate", type=float, default=5e-4, help="of learning (%(default)s)")
    parser.add_argument("--threads", type=int, help="of the CPU")
    return parser.parse_args()


class Report:
    """Writes files and prints their perplexities beside the original's."""

    def __init__(self, model, held, options):
        self.model, self.held, self.options = model, held, options
        c = model.config
        self.original = perplexity(model, held)
        print(f"{'':12} {'KV bytes/token':>14} {'perplexity':>11} {'ratio':>7}   ({held.numel()} held-out tokens)")
        print(f"{'original':12} {4 * c.kv_heads * c.head_dim * c.layers:14} {self.original:11.3f} {1:7.3f}", flush=True)

    def add(self, rank, layers):
        model, path = self.model, pathlib.Path(f"{self.options.out}-{rank}.gguf")
        write(model, layers, rank, path, gguf.GGMLQuantizationType[self.options.store])
        loss = perplexity(model, self.held, lambda i, h: latent.attention(model, layers[i], h))
        row = 2 * (rank + model.config.head_dim) * model.config.layers
        print(f"{f'rank {rank}':12} {row:14} {loss:11.3f} {loss / self.original:7.3f}   {path}", flush=True)


def main():
    options = parse()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    model = LlamaModel(options.model)
    with torch.no_grad():
        given = sequences(model.reader, options.calibrate, options.piece, options.tokens // options.piece)
        report = Report(model, sequences(model.reader, options.held_out, options.length, options.tests), options)
    for rank in options.rank:
        with torch.no_grad():
            layers = conversion.convert(model, given, rank, options.key_weight, options.heal, options.rate)
            report.add(rank, layers)


if __name__ == "__main__":
    main()
