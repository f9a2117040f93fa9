"""Reads what `kvasir dump-hidden` wrote: tokens and hidden states of many sequences, as one long stream."""

import json
import struct

import numpy

FORMAT = "kvasir hidden states 1"
TYPES = {"I32": numpy.int32, "I64": numpy.int64, "F16": numpy.float16, "F32": numpy.float32}


class HiddenDump:
    """One file. tokens [N]; starts [S + 1]; answers [S]; hidden [N, points, width], mapped, not read."""

    def __init__(self, path):
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        notes = header.pop("__metadata__", {})
        if notes.get("format") != FORMAT:
            raise SystemExit(f"{path}: this is no file of `kvasir dump-hidden`")
        self.model = notes["model"]
        self.points = notes["points"].split(",")
        for name, entry in header.items():
            begin, _ = entry["data_offsets"]
            array = numpy.memmap(path, mode="r", dtype=TYPES[entry["dtype"]], offset=8 + length + begin,
                                 shape=tuple(entry["shape"]))
            setattr(self, name, array)

    def point(self, name):
        """[N, width] of one point."""
        if name not in self.points:
            raise SystemExit(f"the dump has the points {', '.join(self.points)}, and {name} is needed")
        return self.hidden[:, self.points.index(name)]


class Stream:
    """Several dumps of one model behind one another."""

    def __init__(self, paths):
        dumps = [HiddenDump(path) for path in paths]
        if len({dump.model for dump in dumps}) != 1:
            raise SystemExit(f"{', '.join(map(str, paths))}: dumps of different models")
        self.model = dumps[0].model
        self.dumps = dumps
        self.tokens = numpy.concatenate([dump.tokens for dump in dumps]).astype(numpy.int64)
        bases = numpy.cumsum([0] + [len(dump.tokens) for dump in dumps])
        self.starts = numpy.concatenate([dump.starts[:-1] + base for dump, base in zip(dumps, bases)])
        self.answers = numpy.concatenate([dump.answers + base for dump, base in zip(dumps, bases)])
        self.ends = numpy.append(self.starts[1:], len(self.tokens))

    def point(self, name):
        return numpy.concatenate([dump.point(name) for dump in self.dumps])

    def answer_tokens(self):
        return numpy.concatenate([self.tokens[a:e] for a, e in zip(self.answers, self.ends)])

    def sequence_of(self):
        """[N] which sequence each token belongs to."""
        return numpy.repeat(numpy.arange(len(self.starts)), self.ends - self.starts)


def draft_vocabulary(stream, size):
    """The `size` tokens that answers have most often, ascending, and the share of the answers that they are."""
    counts = numpy.bincount(stream.answer_tokens())
    chosen = numpy.sort(numpy.argsort(-counts, kind="stable")[:size])
    return chosen, counts[chosen].sum() / counts.sum()


def recipe(args, stream, **more):
    """What a head file says about how it was made: text by key."""
    facts = {"trained_on": f"{len(stream.tokens)} tokens in {len(stream.starts)} sequences",
             "target": stream.model, "seed": args.seed, "learning_rate": args.rate}
    facts.update(more)
    return {key: str(value) for key, value in facts.items()}
