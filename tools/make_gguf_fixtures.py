#!/usr/bin/env python3
"""Writes tests/data/quants/<TYPE>.bin, the expected values of kernels/quant_codec_test.cc.

Each file holds, little-endian: u32 number of blocks; the blocks' bytes; the f32 values that the `gguf` package decodes
from them. Needs numpy and gguf. The output depends on the seed below only, so a rerun leaves git clean.

usage: tools/make_gguf_fixtures.py [OUTPUT_FOLDER]
"""

import pathlib
import sys

import gguf
import numpy as np

SEED = 20240607
TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
         "IQ4_NL", "MXFP4"]
# Byte offsets of the f16 scales inside a block.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0]}
# Zeros, subnormals, smallest normal, one, largest, infinities.
EDGES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x8400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00]
RANDOM_BLOCKS = {"F32": 64, "F16": 256, "BF16": 256}


def put_half(blocks, row, offset, value):
    blocks[row, offset:offset + 2] = np.array([value], "<u2").view(np.uint8)


def make_blocks(name, rng):
    kind = gguf.GGMLQuantizationType[name]
    size = gguf.GGML_QUANT_SIZES[kind][1]
    offsets = HALVES.get(name, [])
    count = RANDOM_BLOCKS.get(name, 8)
    edges = [(a, b) for i, a in enumerate(EDGES) for b in {EDGES[i], EDGES[-1 - i]}] if len(offsets) == 2 else \
            [(a, None) for a in EDGES] if offsets else []
    blocks = rng.integers(0, 256, (count + len(edges), size), dtype=np.uint8)
    for row in range(count):
        for offset in offsets:
            put_half(blocks, row, offset, np.float16(rng.normal() * 0.02).view(np.uint16))
    for row, values in enumerate(sorted(edges, key=str)):
        for offset, value in zip(offsets, values):
            put_half(blocks, count + row, offset, value)
    if name == "F16":  # every exponent, and NaN with its payload
        blocks = np.concatenate([blocks, np.arange(0, 65536, 37, dtype="<u2").view(np.uint8).reshape(-1, 2)])
    if name == "MXFP4":  # every E8M0 exponent
        blocks = np.concatenate([blocks, rng.integers(0, 256, (256, size), dtype=np.uint8)])
        blocks[-256:, 0] = np.arange(256)
    if name in ("F32", "BF16"):
        blocks = np.concatenate([blocks, np.frombuffer(b"\x80\x7f\x80\xff\x00\x80\x01\x00", np.uint8).reshape(-1, size)])
    return kind, np.ascontiguousarray(blocks)


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests/data/quants"
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    for name in TYPES:
        kind, blocks = make_blocks(name, rng)
        with np.errstate(all="ignore"):
            values = gguf.quants.dequantize(blocks.reshape(-1), kind).astype("<f4", copy=False)
        data = np.array([len(blocks)], "<u4").tobytes() + blocks.tobytes() + values.tobytes()
        (out / f"{name}.bin").write_bytes(data)
        print(f"{name}: {len(blocks)} blocks, {len(data)} bytes")


if __name__ == "__main__":
    main()
