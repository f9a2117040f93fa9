#!/usr/bin/env python3
"""Writes the tensors of a PyTorch pickle, as many draft heads are published, as safetensors. Runs no code of the
file's: what such a file may name is a list of tensors, their storages and ordered dictionaries; anything else is an error.

  .venv/bin/python tools/head_from_pickle.py EAGLE3-LLaMA3.1-Instruct-8B/pytorch_model.bin
  .venv/bin/python tools/head_from_pickle.py medusa-vicuna-7b-v1.3/medusa_lm_head.pt

Reads the zip archives that torch.save writes since PyTorch 1.6. The output is FILE with the ending .safetensors, or
model.safetensors for pytorch_model.bin, beside its config.json.
"""

import argparse
import collections
import pathlib
import pickle
import sys
import zipfile

import numpy as np

import safetensors_file

# A storage's class: the type's name in safetensors, and one of numpy's with as many bytes.
STORAGES = {
    "FloatStorage": ("F32", "<u4"), "HalfStorage": ("F16", "<u2"), "BFloat16Storage": ("BF16", "<u2"),
    "LongStorage": ("I64", "<u8"), "IntStorage": ("I32", "<u4"), "ByteStorage": ("U8", "<u1"),
    "BoolStorage": ("BOOL", "<u1"),
}
PICKLED = {"pytorch_model.bin": "model.safetensors"}


class Tensor:
    def __init__(self, kind, values):
        self.kind, self.values = kind, values


def rebuild_tensor(storage, offset, shape, strides, *_):
    kind, values = storage
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides)) if all(shape) else offset - 1
    if offset < 0 or min((*strides, 0)) < 0 or last >= len(values):
        raise pickle.UnpicklingError(f"a tensor of shape {tuple(shape)} reaches to value {last} of {len(values)}")
    steps = [stride * values.itemsize for stride in strides]
    view = np.lib.stride_tricks.as_strided(values[offset:], shape, steps, writeable=False)
    return Tensor(kind, np.ascontiguousarray(view))


class Reader(pickle.Unpickler):
    NAMES = {
        ("collections", "OrderedDict"): collections.OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2"): rebuild_tensor,
        ("torch._utils", "_rebuild_parameter"): lambda data, *_: data,
    }

    def __init__(self, archive, root):
        super().__init__(archive.open(root + "data.pkl"))
        self.archive, self.root = archive, root

    def find_class(self, module, name):
        if module == "torch" and name in STORAGES:
            return name
        if (module, name) in self.NAMES:
            return self.NAMES[module, name]
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is no part of a list of tensors")

    def persistent_load(self, pid):
        _, storage, key, _, count = pid
        kind, numbers = STORAGES[storage]
        return kind, np.frombuffer(self.archive.read(f"{self.root}data/{key}"), numbers, count)


def read(path):
    """Name -> Tensor."""
    if not path.is_file():
        sys.exit(f"{path}: there is no such file")
    if not zipfile.is_zipfile(path):
        sys.exit(f"{path}: no zip archive, as torch.save writes it since PyTorch 1.6")
    with zipfile.ZipFile(path) as archive:
        roots = [name.removesuffix("data.pkl") for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(roots) != 1:
            sys.exit(f"{path}: has {len(roots)} files data.pkl, and torch.save writes one")
        order = archive.read(roots[0] + "byteorder") if roots[0] + "byteorder" in archive.namelist() else b"little"
        if order != b"little":
            sys.exit(f"{path}: its byte order is {order.decode()}; little is read")
        try:
            tensors = Reader(archive, roots[0]).load()
        except (pickle.UnpicklingError, KeyError, ValueError, TypeError) as error:
            sys.exit(f"{path}: {error}")
    if isinstance(tensors, dict) and isinstance(tensors.get("state_dict"), dict):
        tensors = tensors["state_dict"]
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        sys.exit(f"{path}: holds something else than names and tensors")
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path, help="pytorch_model.bin, medusa_lm_head.pt")
    parser.add_argument("output", type=pathlib.Path, nargs="?", help="safetensors file to write")
    options = parser.parse_args()
    beside = options.file.with_name(PICKLED.get(options.file.name, options.file.stem + ".safetensors"))
    tensors = read(options.file)
    safetensors_file.write(options.output or beside, {name: (t.kind, t.values) for name, t in tensors.items()})
    print(f"{options.output or beside}: {len(tensors)} tensors")


if __name__ == "__main__":
    main()
