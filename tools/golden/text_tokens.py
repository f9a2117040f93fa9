"""Token ids of a text, made without Kvasir: Hugging Face `tokenizers` for byte-level BPE, and for
SentencePiece vocabularies the plain rule (join the neighbours whose union scores highest, leftmost first)."""

import re

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers

# The pattern Qwen2 splits words by, as its published tokenizer has it.
QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
USER_DEFINED = 4


def _byte_level_bpe(meta):
    tokens = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = tokenizers.Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    pre = meta["tokenizer.ggml.pre"]
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
        split = pre_tokenizers.Split(Regex(QWEN2_WORDS), "isolated")
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    elif pre == "smollm":
        split = pre_tokenizers.Digits(individual_digits=True)
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        raise ValueError(f"no pre-tokenizer written down here for {pre}")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    return lambda text: tokenizer.encode(text).ids


def _merge_by_score(pieces, ids, scores):
    while len(pieces) > 1:
        joined = [ids.get(a + b) for a, b in zip(pieces, pieces[1:])]
        best = max((i for i in range(len(joined)) if joined[i] is not None),
                   key=lambda i: (scores[joined[i]], -i), default=None)
        if best is None:
            return pieces
        pieces[best:best + 2] = [pieces[best] + pieces[best + 1]]
    return pieces


def _sentencepiece(meta):
    tokens, scores, kinds = (meta["tokenizer.ggml." + key] for key in ("tokens", "scores", "token_type"))
    ids = {token: i for i, token in enumerate(tokens)}
    fixed = sorted((t for t, kind in zip(tokens, kinds) if kind == USER_DEFINED), key=len, reverse=True)
    fixed_pattern = re.compile("(" + "|".join(map(re.escape, fixed)) + ")") if fixed else None

    def encode(text):
        if meta.get("tokenizer.ggml.add_space_prefix", True):
            text = " " + text
        out = []
        # User-defined tokens are found in the text itself, before spaces become U+2581.
        for part in fixed_pattern.split(text) if fixed_pattern else [text]:
            if part in fixed:
                out.append(ids[part])
                continue
            # No piece of these vocabularies reaches over the start of a word, and words are short.
            for word in re.findall("\u2581*[^\u2581]+|\u2581+", part.replace(" ", "\u2581")):
                for piece in _merge_by_score(list(word), ids, scores):
                    out += [ids[piece]] if piece in ids else [ids[f"<0x{b:02X}>"] for b in piece.encode()]
        return out

    return encode


def encode(meta, text):
    """Ids of `text` for a model with metadata `meta`, with BOS where the model asks for it."""
    kind = meta["tokenizer.ggml.model"]
    ids = {"gpt2": _byte_level_bpe, "llama": _sentencepiece}[kind](meta)(text)
    add_bos = meta.get("tokenizer.ggml.add_bos_token", kind == "llama")
    return [meta["tokenizer.ggml.bos_token_id"]] * bool(add_bos) + ids
