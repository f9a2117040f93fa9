"""The file that holds what a model should have answered, and how an answer is measured against it.

Little endian, arrays one after another without padding (tests/data/golden/README.md says the same in words):

    char magic[8] = "KVGOLD01"; uint32 positions; uint32 top; uint32 vocab; uint32 zero
    uint32  tokens[positions]             the text
    uint32  ids[positions][top]           the `top` most probable next tokens, most probable first
    float32 logprobs[positions][top]      their log-probabilities
    float32 rest[positions]               log of the probability of all other tokens together
    float32 next[positions]               log-probability of tokens[i + 1]; 0 at the last position
"""

import dataclasses
import struct

import numpy as np

MAGIC = b"KVGOLD01"


@dataclasses.dataclass
class Golden:
    vocab: int
    tokens: np.ndarray
    ids: np.ndarray
    logprobs: np.ndarray
    rest: np.ndarray
    next: np.ndarray

    def perplexity(self):
        return float(np.exp(-self.next[:-1].astype(np.float64).mean()))


@dataclasses.dataclass
class Agreement:
    kl: np.ndarray  # nats, per position
    top1: np.ndarray  # bool, per position


def log_softmax(logits):
    """Row-wise, in float64."""
    logits = np.asarray(logits, dtype=np.float64)
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def make(tokens, logits, top):
    """A Golden from logits of shape [positions, vocab]. Equal logits are ordered by id."""
    positions, vocab = logits.shape
    golden = Golden(
        vocab=vocab,
        tokens=np.asarray(tokens, dtype=np.uint32),
        ids=np.empty((positions, top), dtype=np.uint32),
        logprobs=np.empty((positions, top), dtype=np.float32),
        rest=np.empty(positions, dtype=np.float32),
        next=np.zeros(positions, dtype=np.float32),
    )
    for i in range(positions):
        row = log_softmax(logits[i])
        order = np.argsort(-row, kind="stable")
        golden.ids[i] = order[:top]
        golden.logprobs[i] = row[order[:top]]
        golden.rest[i] = np.log(np.exp(row[order[top:]]).sum())
        if i + 1 < positions:
            golden.next[i] = row[tokens[i + 1]]
    return golden


def write(path, golden):
    positions, top = golden.ids.shape
    with open(path, "wb") as file:
        file.write(MAGIC + struct.pack("<4I", positions, top, golden.vocab, 0))
        for array in (golden.tokens, golden.ids):
            file.write(array.astype("<u4").tobytes())
        for array in (golden.logprobs, golden.rest, golden.next):
            file.write(array.astype("<f4").tobytes())


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    if data[:8] != MAGIC:
        raise ValueError(f"{path}: not a golden file")
    positions, top, vocab, _ = struct.unpack_from("<4I", data, 8)
    expected = 24 + 4 * positions * (2 * top + 3)
    if len(data) != expected:
        raise ValueError(f"{path}: {len(data)} bytes, expected {expected}")
    offset = 24

    def take(dtype, *shape):
        nonlocal offset
        count = int(np.prod(shape))
        array = np.frombuffer(data, dtype, count, offset).reshape(shape)
        offset += 4 * count
        return array

    tokens = take("<u4", positions)
    ids = take("<u4", positions, top)
    logprobs = take("<f4", positions, top)
    return Golden(vocab, tokens, ids, logprobs, take("<f4", positions), take("<f4", positions))


def compare(golden, logits, first=0):
    """KL(golden || logits) over the top tokens and one bucket of all others, for rows `first`, `first` + 1, ...

    Merging the others into one bucket can only lower the divergence, so figures compare only with
    figures made the same way.
    """
    kl, top1 = [], []
    for i, row_logits in enumerate(logits):
        row = log_softmax(row_logits)
        ids = golden.ids[first + i]
        log_p = golden.logprobs[first + i].astype(np.float64)
        log_q = row[ids]
        rest_p = float(golden.rest[first + i])
        others = np.delete(row, ids)
        rest_q = np.log(np.exp(others).sum())
        kl.append(float((np.exp(log_p) * (log_p - log_q)).sum() + np.exp(rest_p) * (rest_p - rest_q)))
        top1.append(int(row.argmax()) == int(ids[0]))
    return Agreement(np.array(kl), np.array(top1))
