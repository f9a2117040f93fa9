"""Writes safetensors files without torch, whose types numpy lacks."""

import json
import struct


def write(path, tensors, metadata=None):
    """`tensors` by name: the format's name of their type ("F16", "BF16", "I64"), and an array of as many bytes each."""
    header, at = {} if metadata is None else {"__metadata__": metadata}, 0
    for name, (kind, values) in tensors.items():
        header[name] = {"dtype": kind, "shape": values.shape, "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            file.write(values.tobytes())
