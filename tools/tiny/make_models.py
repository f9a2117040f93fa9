#!/usr/bin/env python3
"""Makes tests/data/tiny/models.tar.xz: for every architecture a small GGUF model with random weights and what
transformers answers with them in f32, and manifest.json beside it.

    tools/tiny/make_models.py [--into FOLDER] [NAME ...]

Each <name>.golden is little-endian: "KVTINY01", u32 positions, u32 vocabulary, u32 tokens[positions],
f32 logits[positions][vocabulary]; <name>.json is the model's config.json; <name>.ids, where transformers defines such a tokenizer, has the token ids of
tests/data/tokenizer/torture.txt, each line led by the text's number. A feature whose absence would not show in the logits is an error. With names or a
folder nothing but the files themselves is written, for a look. `make goldens` runs this in .venv-peers, which holds
torch and transformers. The weights depend on the names of models and parameters only.
"""

import argparse
import copy
import hashlib
import importlib.metadata
import io
import json
import pathlib
import struct
import sys
import tarfile
import tempfile

import gguf
import numpy as np
import torch

import architectures
import convert
import token_ids
import weights

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent.parent / "tests" / "data" / "tiny"
SHOWS = 0.999  # a feature matters if some position's logits without it have a cosine below this


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def make_model(tiny):
    model = tiny.build()
    weights.randomise(model, tiny.name, tiny.embedding_scale, 1.0 - tiny.norm_offset)
    return model


def logits_of(model, tokens):
    with torch.inference_mode():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()


def cosines(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))


def without(config, changes):
    changed = copy.deepcopy(config)
    for key, value in changes.items():
        *outer, last = key.split(".")
        if outer:
            changed.rope_parameters = changed.rope_parameters | {last: value}
        else:
            setattr(changed, last, value)
    return changed


def check_features(tiny, model, tokens, logits):
    for feature, changes in tiny.features.items():
        other = tiny.build(without(tiny.config, changes))
        other.load_state_dict(model.state_dict())
        least = cosines(logits, logits_of(other, tokens)).min()
        print(f"  without {feature}: cosine {least:.6f}")
        if not least < SHOWS:
            raise ValueError(f"{tiny.name}: {feature} does not show in the logits (cosine {least:.6f})")


def golden_bytes(tokens, logits):
    positions, vocabulary = logits.shape
    return (b"KVTINY01" + struct.pack("<2I", positions, vocabulary) + np.array(tokens, "<u4").tobytes() +
            logits.astype("<f4").tobytes())


def make_one(tiny, folder):
    tokens = weights.random_tokens(tiny.name, architectures.POSITIONS, tiny.config.vocab_size)
    model = make_model(tiny)
    logits = logits_of(model, tokens)
    print(f"{tiny.name}: {sum(p.numel() for p in model.parameters())} parameters, logits deviate by {logits.std():.2f}")
    check_features(tiny, model, tokens, logits)
    convert.write(tiny, model, folder / f"{tiny.name}.gguf")
    (folder / f"{tiny.name}.json").write_text(tiny.config.to_json_string())
    if tiny.pre in token_ids.CLASSES:
        (folder / f"{tiny.name}.ids").write_text("\n".join(token_ids.lines(tiny.pre)) + "\n")
    (folder / f"{tiny.name}.golden").write_bytes(golden_bytes(tokens, logits))


def archive(folder):
    """The folder's files as tar.xz, the same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", format=tarfile.USTAR_FORMAT, preset=9) as tar:
        for path in sorted(folder.iterdir()):
            entry = tarfile.TarInfo(path.name)
            entry.size = path.stat().st_size
            with open(path, "rb") as file:
                tar.addfile(entry, file)
    return buffer.getvalue()


def manifest(packed, folder):
    versions = {name: importlib.metadata.version(name) for name in ("gguf", "numpy", "torch", "transformers")}
    return {
        "made_with": versions,
        "scripts": {path.name: sha256(path.read_bytes()) for path in sorted(HERE.glob("*.py"))},
        "archive": sha256(packed),
        "files": {path.name: sha256(path.read_bytes()) for path in sorted(folder.iterdir())},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--into", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    models = architectures.all_models()
    unknown = set(options.names) - {tiny.name for tiny in models}
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(tiny.name for tiny in models)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.into or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for tiny in models:
            if not options.names or tiny.name in options.names:
                make_one(tiny, folder)
        if options.names or options.into:
            return
        DATA.mkdir(parents=True, exist_ok=True)
        packed = archive(folder)
        (DATA / "models.tar.xz").write_bytes(packed)
        (DATA / "manifest.json").write_text(json.dumps(manifest(packed, folder), indent=2) + "\n")
        print(f"{DATA / 'models.tar.xz'}: {len(packed)} bytes")


if __name__ == "__main__":
    main()
