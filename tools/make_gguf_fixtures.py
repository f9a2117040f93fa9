#!/usr/bin/env python3
"""Writes the files that the GGUF reader and the quantisation codecs are tested with. Needs numpy and gguf.

tests/data/quants/<TYPE>.bin, for kernels/quant_codec_test.cc. Little-endian: u32 number of blocks; the blocks' bytes;
the f32 values that the `gguf` package decodes from them.

tests/corpus/gguf/sound/, small files that must be read, most of them made by the `gguf` package's writer;
tests/corpus/gguf/damaged/, small files that must be refused. Both are the seeds of tests/fuzz/gguf_fuzz.cc.

tests/data/gguf/<MODEL>.txt, what the `gguf` package finds in each of models/*.gguf that is there: a line for each key
(name, kind of value) and each tensor (name, type number, shape).

The output depends on the seed below only, so a rerun leaves git clean.

usage: tools/make_gguf_fixtures.py [FOLDER, in place of tests/]
"""

import pathlib
import struct
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


def write_quants(out):
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    for name in TYPES:
        kind, blocks = make_blocks(name, rng)
        with np.errstate(all="ignore"):
            values = gguf.quants.dequantize(blocks.reshape(-1), kind).astype("<f4", copy=False)
        data = np.array([len(blocks)], "<u4").tobytes() + blocks.tobytes() + values.tobytes()
        (out / f"{name}.bin").write_bytes(data)


def string(text):
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def pair(key, kind, value):
    return string(key) + struct.pack("<I", kind) + value


def tensor(name, dims, kind, offset):
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def by_hand(pairs=(), tensors=(), data=b"", version=3, n_pairs=None, n_tensors=None, magic=b"GGUF", alignment=32):
    """A file of exactly these parts; the counts may lie."""
    head = magic + struct.pack("<IQQ", version, len(tensors) if n_tensors is None else n_tensors,
                               len(pairs) if n_pairs is None else n_pairs)
    head += b"".join(pairs) + b"".join(tensors)
    return head + b"\0" * (-len(head) % alignment) + data


ARCH = pair("general.architecture", 8, string("llama"))
U32 = struct.pack("<I", 7)
MAX = 2**64 - 1


def one_tensor(dims=(8,), kind=0, offset=0, name="t", data=bytes(32), **rest):
    return by_hand([ARCH], [tensor(name, dims, kind, offset)], data, **rest)


def damaged():
    def key(kind, value):
        return by_hand([ARCH, pair("key", kind, value)])

    def array(kind, count, value=b""):
        return key(9, struct.pack("<IQ", kind, count) + value)

    def alignment(kind, value):
        return by_hand([pair("general.alignment", kind, value)], [tensor("t", (8,), 0, 0)], bytes(32))

    ok = one_tensor()
    return {
        "magic": one_tensor(magic=b"GGML"), "version-0": one_tensor(version=0), "version-1": one_tensor(version=1),
        "version-4": one_tensor(version=4), "big-endian": one_tensor(version=3 << 24),
        "pairs-2-60": by_hand([ARCH], n_pairs=2**60), "tensors-2-60": by_hand([ARCH], n_tensors=2**60),
        "pairs-max": by_hand([ARCH], n_pairs=MAX), "tensors-max": by_hand([ARCH], n_tensors=MAX),
        "key-empty": by_hand([pair("", 4, U32)]), "key-twice": by_hand([ARCH, ARCH]),
        "key-length-2-63": by_hand([struct.pack("<Q", 2**63) + ARCH[8:]]),
        "value-type-13": key(13, bytes(8)), "value-type-max": key(2**32 - 1, bytes(8)), "bool-2": key(7, b"\2"),
        "u64-above-i64": key(10, struct.pack("<Q", 2**63)), "string-length-2-63": key(8, struct.pack("<Q", 2**63)),
        "string-length-max": key(8, struct.pack("<Q", MAX)), "array-count-2-61": array(10, 2**61),
        "array-count-max": array(0, MAX), "array-strings-2-60": array(8, 2**60, string("x")),
        "array-type-99": array(99, 1, bytes(8)), "array-of-arrays": array(9, 1, struct.pack("<IQ", 0, 0)),
        "array-deep": array(9, 1, struct.pack("<IQ", 9, 1) * 1000),
        "alignment-0": alignment(4, struct.pack("<I", 0)), "alignment-3": alignment(4, struct.pack("<I", 3)),
        "alignment-i32": alignment(5, struct.pack("<I", 32)), "alignment-2-31": alignment(4, struct.pack("<I", 2**31)),
        "name-empty": one_tensor(name=""), "name-65": one_tensor(name="x" * 65),
        "name-twice": by_hand([ARCH], [tensor("t", (8,), 0, 0), tensor("t", (8,), 0, 32)], bytes(64)),
        "dims-0": one_tensor(()), "dims-5": one_tensor((1,) * 5), "dims-9": one_tensor((1,) * 9),
        "dims-max": by_hand([ARCH], [string("t") + struct.pack("<I", 2**32 - 1)]), "dim-zero": one_tensor((8, 0)),
        "dim-2-42-1": one_tensor((2**42 + 1,)), "dim-wraps": one_tensor((2**62, 4)),
        "elements-wrap": one_tensor((2**32, 2**32), 8), "rows-max": one_tensor((8, MAX)),
        "tensor-type-4": one_tensor(kind=4), "tensor-type-max": one_tensor(kind=2**32 - 1),
        "row-not-blocks": one_tensor((33,), 8), "offset-odd": one_tensor(offset=1), "offset-beyond": one_tensor(offset=32),
        "offset-wraps": one_tensor(offset=2**64 - 32),
        "overlap": by_hand([ARCH], [tensor("a", (16,), 0, 0), tensor("b", (8,), 0, 32)], bytes(64)),
        "data-cut": ok[:-1], "directory-cut": ok[:100], "header-cut": ok[:20], "empty": b"",
        "split": by_hand([ARCH, pair("split.count", 2, struct.pack("<H", 3))]),
    }


def written_by_gguf(path, fill):
    writer = gguf.GGUFWriter(path, "llama")
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def every_value(w):
    w.add_uint8("v.u8", 200)
    w.add_int8("v.i8", -100)
    w.add_uint16("v.u16", 60000)
    w.add_int16("v.i16", -30000)
    w.add_uint32("v.u32", 4000000000)
    w.add_int32("v.i32", -2000000000)
    w.add_uint64("v.u64", 2**62)
    w.add_int64("v.i64", -2**62)
    w.add_float32("v.f32", 0.5)
    w.add_float64("v.f64", 0.1)
    w.add_bool("v.bool", True)
    w.add_string("v.string", "grüße")
    w.add_array("v.ints", [1, -2, 3])
    w.add_array("v.floats", [0.5, 1.5])
    w.add_array("v.bools", [True, False])
    w.add_array("v.strings", ["a", "", "<|im_end|>"])


def every_tensor_type(w):
    for i, name in enumerate(TYPES):
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        w.add_tensor(f"blk.{i}.{name}", np.arange(2 * size, dtype=np.uint8).reshape(2, size), raw_dtype=kind)


def aligned_to_64(w):
    w.add_custom_alignment(64)
    w.add_tensor("a", np.arange(5, dtype=np.float32))
    w.add_tensor("b", np.arange(24, dtype=np.float16).reshape(2, 3, 4))


def write_corpus(out):
    sound = out / "sound"
    refused = out / "damaged"
    for folder in (sound, refused):
        folder.mkdir(parents=True, exist_ok=True)
    written_by_gguf(sound / "values.gguf", every_value)
    written_by_gguf(sound / "types.gguf", every_tensor_type)
    written_by_gguf(sound / "aligned.gguf", aligned_to_64)
    written_by_gguf(sound / "vocabulary.gguf", lambda w: w.add_token_list([f"t{i}" for i in range(40)]))
    (sound / "version-2.gguf").write_bytes(one_tensor(version=2))
    (sound / "bare.gguf").write_bytes(by_hand())
    for name, data in damaged().items():
        (refused / f"{name}.gguf").write_bytes(data)


def kind_of_value(field):
    kinds = {gguf.GGUFValueType.BOOL: "bool", gguf.GGUFValueType.STRING: "string", gguf.GGUFValueType.FLOAT32: "float",
             gguf.GGUFValueType.FLOAT64: "float"}
    array = "array " if field.types[0] == gguf.GGUFValueType.ARRAY else ""
    return array + kinds.get(field.types[-1], "int")


def write_listings(models, out):
    out.mkdir(parents=True, exist_ok=True)
    for model in sorted(models.glob("*.gguf")):
        reader = gguf.GGUFReader(model)
        lines = sorted(f"key {key} {kind_of_value(field)}" for key, field in reader.fields.items()
                       if not key.startswith("GGUF."))
        lines += [f"tensor {t.name} {int(t.tensor_type)} {' '.join(str(int(n)) for n in t.shape)}"
                  for t in reader.tensors]
        (out / f"{model.stem}.txt").write_text("\n".join(lines) + "\n")


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests"
    write_quants(out / "data/quants")
    write_corpus(out / "corpus/gguf")
    write_listings(root / "models", out / "data/gguf")


if __name__ == "__main__":
    main()
