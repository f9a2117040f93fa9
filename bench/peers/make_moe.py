#!/usr/bin/env python3
"""Writes models/random-moe.gguf: a mixture of experts with random weights in Qwen3-MoE's topology, large enough that
its experts come from memory, to measure with compare.py --models moe. What it says means nothing.

    bench/peers/make_moe.py [--format Q8_0|Q4_0|F16] [--layers N] [--experts N] [--used N] [--output FILE]

By default 64 experts of width 384 in each of 12 layers of width 1,024, of which a token goes to 8: 0.96 GB as Q8_0, 0.2
of which a token reads. Runs in .venv-peers, which holds the gguf package.
"""

import argparse
import pathlib
import sys

import gguf
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "tools" / "tiny"))
import vocabulary  # noqa: E402

WIDTH, HEADS, KV_HEADS, HEAD_DIM, EXPERT_WIDTH, TOKENS = 1024, 16, 4, 64, 384, 16384


def write_keys(writer, options):
    writer.add_name("Random MoE")
    writer.add_block_count(options.layers)
    writer.add_context_length(8192)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(4 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(options.experts)
    writer.add_expert_used_count(options.used)
    writer.add_expert_feed_forward_length(EXPERT_WIDTH)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    tokens = vocabulary.tokens()
    tokens += [f"filler{i}" for i in range(TOKENS - len(tokens))]
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * TOKENS)
    writer.add_token_merges([" ".join(pair) for pair in vocabulary.MERGES])
    writer.add_eos_token_id(vocabulary.SIZE - 1)
    writer.add_add_bos_token(False)


class Weights:
    """Adds tensors of normal numbers, quantised once per shape and dealt out otherwise each time."""

    def __init__(self, writer, kind):
        self.writer, self.kind = writer, kind
        self.random = np.random.default_rng(1)
        self.made = {}

    def matrix(self, name, *shape, kind=None):
        kind = kind or self.kind
        if (shape, kind) not in self.made:
            values = self.random.standard_normal((1, *shape[-2:]), dtype=np.float32) / np.sqrt(shape[-1])
            self.made[shape, kind] = gguf.quants.quantize(values, kind)[0]
        rows = self.made[shape, kind]
        count = shape[0] if len(shape) == 3 else 1
        copies = [np.roll(rows, int(self.random.integers(len(rows))), axis=0) for _ in range(count)]
        self.writer.add_tensor(name, np.stack(copies) if len(shape) == 3 else copies[0], raw_dtype=kind)

    def ones(self, name, width):
        self.writer.add_tensor(name, np.ones(width, dtype=np.float32))


def write_tensors(weights, options):
    f32 = gguf.GGMLQuantizationType.F32
    weights.matrix("token_embd.weight", TOKENS, WIDTH)
    weights.matrix("output.weight", TOKENS, WIDTH)
    weights.ones("output_norm.weight", WIDTH)
    for layer in range(options.layers):
        name = f"blk.{layer}.{{}}.weight".format
        for norm in ("attn_norm", "ffn_norm"):
            weights.ones(name(norm), WIDTH)
        for norm in ("attn_q_norm", "attn_k_norm"):
            weights.ones(name(norm), HEAD_DIM)
        weights.matrix(name("attn_q"), HEADS * HEAD_DIM, WIDTH)
        for part in ("attn_k", "attn_v"):
            weights.matrix(name(part), KV_HEADS * HEAD_DIM, WIDTH)
        weights.matrix(name("attn_output"), WIDTH, HEADS * HEAD_DIM)
        weights.matrix(name("ffn_gate_inp"), options.experts, WIDTH, kind=f32)
        for part in ("ffn_gate_exps", "ffn_up_exps"):
            weights.matrix(name(part), options.experts, EXPERT_WIDTH, WIDTH)
        weights.matrix(name("ffn_down_exps"), options.experts, WIDTH, EXPERT_WIDTH)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", default="Q8_0", choices=("Q8_0", "Q4_0", "F16"))
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--used", type=int, default=8)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "models" / "random-moe.gguf")
    options = parser.parse_args()
    writer = gguf.GGUFWriter(options.output, "qwen3moe", use_temp_file=True)
    write_keys(writer, options)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{options.format}"])
    write_tensors(Weights(writer, gguf.GGMLQuantizationType[options.format]), options)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{options.output}: {options.output.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
