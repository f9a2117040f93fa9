#!/usr/bin/env python3
"""Token ids that the C++ tokenizers must give, by Hugging Face's `tokenizers`.

For every model in --models, an HF tokenizer is put together from the GGUF file's vocabulary and merges alone (for
SentencePiece models the merges are derived from the scores as transformers' converter derives them), and run over
tests/data/tokenizer/torture.txt and over 10,000 random strings. Each text is encoded twice: `plain`, where control
tokens written out in the text stay text, and `control`, where they become their ids. Results: one file per model in
tests/data/tokenizer, with the ids of the torture texts and one digest per 100 random strings.

With --published NAME=tokenizer.json the put-together tokenizer is compared with a published one on the same texts.

Needs the PyPI packages gguf and tokenizers.
"""

import argparse
import pathlib
import random
import sys
import unicodedata

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "tokenizer"
MODELS = {
    "smollm2": "smollm2-135m-instruct-q4_1.gguf",
    "gemma3": "gemma-3-270m-q4_k_m.gguf",
    "qwen2.5-0.5b": "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    "qwen2.5-1.5b": "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
}
RANDOM_STRINGS, BLOCK = 10_000, 100
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
FRAGMENTS = """the quick I'm don't WE'LL 'S 'll hello World camelCase 123 4567 9 3.14 \u0663\u0664 \u00bd \u00b2 \u2167
caf\u00e9 cafe\u0301 e\u0323\u0302 \u6f22\u5b57 \uff0c \u3002 \ud55c\uad6d\uc5b4 \u1112\u1161\u11ab \u043f\u0440\u0438\u0432\u0435\u0442 \u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947
\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd \u2764\ufe0f \u200d \ufe0f \u00a0 \u3000 \u2028 \u0085 \u2014 ... --- // /* */ == != <= -> ::
() {} [ ] , . ; : ! ? # $ % & _ __ ' " ` <b> </td> <table> <tool_call> </tool_call> <|im_start|> <|im_end|> <|endoftext|>
<start_of_turn> <end_of_turn> <bos> <eos> <unk> <|fim_prefix|> <unused3> <|im_ \u2581 \u2581\u2581 <0x41> def return function
""".split() + [" ", "  ", "    ", "        ", "\n", "\n\n", "\r\n", "\r", "\t", "\t\t", " \n", "a", "b", "z", "A", "Q", "0"]


def escape(text):
    special = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(special.get(c, c) if c.isprintable() or c in special else
                   "".join(f"\\x{b:02X}" for b in c.encode()) for c in text)


def unescape(line):
    out, i = bytearray(), 0
    line = line.encode()
    while i < len(line):
        if line[i:i + 1] != b"\\":
            out.append(line[i])
            i += 1
        elif line[i + 1:i + 2] == b"x":
            out.append(int(line[i + 2:i + 4], 16))
            i += 4
        else:
            out += {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"\\": b"\\"}[line[i + 1:i + 2]]
            i += 2
    return bytes(out)


def read_texts(path):
    return [unescape(line) for line in path.read_text().split("\n") if line and not line.startswith("#")]


def write_fragments(path):
    """The pieces of the random strings: those above and code points whose properties no Unicode version since 3.2
    has changed, so that the libraries' Unicode versions do not matter."""
    old = unicodedata.ucd_3_2_0
    stable = [chr(c) for c in range(0x80, 0x110000)
              if unicodedata.category(chr(c)) == old.category(chr(c)) not in ("Cn", "Cs", "Co")
              and unicodedata.normalize("NFC", chr(c)) == old.normalize("NFC", chr(c))]
    rng = random.Random(1)
    picked = rng.sample(stable, 1200) + [c for c in stable if ord(c) < 0x370 or 0x2000 <= ord(c) < 0x2070]
    lines = [escape(t) for t in FRAGMENTS * 12 + picked]
    path.write_text("# Pieces of the random strings, by tools/make_tokenizer_goldens.py.\n" + "\n".join(lines) + "\n")


def splitmix64(state):
    mask = (1 << 64) - 1
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield z ^ (z >> 31)


def random_string(index, fragments):
    rng = splitmix64(index)
    return b"".join(fragments[next(rng) % len(fragments)] for _ in range(1 + next(rng) % 24)).decode()


def digest(values):
    """FNV-1a over 64-bit words."""
    h = 0xCBF29CE484222325
    for v in values:
        h = ((h ^ v) * 0x100000001B3) & ((1 << 64) - 1)
    return h


class Vocabulary:
    def __init__(self, path):
        fields = gguf.GGUFReader(path).fields
        get = lambda key, default=None: fields[key].contents() if key in fields else default
        self.model = get("tokenizer.ggml.model")
        self.pre = get("tokenizer.ggml.pre")
        self.tokens = get("tokenizer.ggml.tokens")
        self.types = get("tokenizer.ggml.token_type")
        self.scores = get("tokenizer.ggml.scores")
        self.merges = [tuple(m.split(" ")) for m in get("tokenizer.ggml.merges", [])]

    def ids_of_type(self, *types):
        return [i for i, t in enumerate(self.types) if t in types]


def sentencepiece_merges(vocab, scores):
    merges = []
    for token, index in vocab.items():
        splits = [(token[:k], token[k:], scores[index]) for k in range(1, len(token))]
        splits = [s for s in splits if s[0] in vocab and s[1] in vocab]
        merges += sorted(splits, key=lambda s: (vocab[s[0]], vocab[s[1]]))
    merges.sort(key=lambda m: (m[2], len(m[0]), len(m[1])), reverse=True)
    return [(left, right) for left, right, _ in merges]


def build(v, control):
    """An HF tokenizer from the GGUF vocabulary; with or without its control tokens as added tokens."""
    added = v.ids_of_type(USER_DEFINED)
    contents = list(v.tokens)
    if v.model == "llama":
        contents = [t.replace(" ", "\u2581") if v.types[i] == USER_DEFINED else t for i, t in enumerate(contents)]
        scores = [0.0 if v.types[i] == USER_DEFINED else s for i, s in enumerate(v.scores)]
        vocab = {t: i for i, t in enumerate(contents)}
        tokenizer = Tokenizer(models.BPE(vocab, sentencepiece_merges(vocab, scores), unk_token="<unk>", fuse_unk=True,
                                         byte_fallback=True))
        tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    else:
        tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(contents)}, v.merges))
        if v.pre == "smollm":
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
        elif v.pre == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
                pre_tokenizers.Split(Regex(QWEN2), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        else:
            sys.exit(f"no HF pre-tokenizer for {v.pre}")
    if control:
        added = sorted(added + v.ids_of_type(CONTROL, UNKNOWN))
    tokenizer.add_tokens([AddedToken(contents[i], normalized=False) for i in added])
    assert tokenizer.get_vocab_size() == len(contents)
    return tokenizer


def check_published(name, path, tokenizer, texts):
    published = Tokenizer.from_file(path)
    differing = [t for t in texts if published.encode(t, add_special_tokens=False).ids != tokenizer.encode(t).ids]
    print(f"{name}: {len(differing)} of {len(texts)} texts differ from {path}", *map(repr, differing[:5]), sep="\n  ")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=str(DATA.parents[2] / "models"))
    parser.add_argument("--published", action="append", default=[], metavar="NAME=tokenizer.json")
    args = parser.parse_args()
    published = dict(p.split("=", 1) for p in args.published)

    write_fragments(DATA / "fragments.txt")
    fragments = read_texts(DATA / "fragments.txt")
    torture = read_texts(DATA / "torture.txt")
    texts = [random_string(i, fragments) for i in range(RANDOM_STRINGS)]
    for name, file in MODELS.items():
        path = pathlib.Path(args.models) / file
        if not path.exists():
            print(f"{name}: {path} is missing, left as it is")
            continue
        vocabulary = Vocabulary(path)
        plain, control = build(vocabulary, False), build(vocabulary, True)
        lines = [f"# {file}, by tools/make_tokenizer_goldens.py with tokenizers {__import__('tokenizers').__version__}"]
        readable = []
        for index, raw in enumerate(torture):
            try:
                readable.append(raw.decode())
            except UnicodeDecodeError:
                continue  # HF takes text only
            for mode, tokenizer in (("plain", plain), ("control", control)):
                lines.append(f"torture {index} {mode} " + " ".join(map(str, tokenizer.encode(readable[-1]).ids)))
        ids = [p.ids + [len(p.ids)] + c.ids for p, c in zip(plain.encode_batch(texts), control.encode_batch(texts))]
        for block in range(0, RANDOM_STRINGS, BLOCK):
            value = digest(i for text_ids in ids[block:block + BLOCK] for i in text_ids)
            lines.append(f"random {block} {BLOCK} {value:016x}")
        (DATA / f"{name}.txt").write_text("\n".join(lines) + "\n")
        print(f"{name}: {len(torture)} torture texts ({len(torture) - len(readable)} not UTF-8), {len(texts)} random")
        if name in published:
            check_published(name, published[name], control, readable + texts)


if __name__ == "__main__":
    main()
