"""A vocabulary small enough for a test: every byte, a few merges, and the tokens that begin and end a text."""

import gguf

MERGES = [("\u0120", "t"), ("h", "e"), ("i", "n"), ("\u0120t", "he"), ("e", "r"), ("\u0120", "a"), ("o", "n"), ("in", "g")]
CONTROL = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>"]
BEGIN, END = 0, 1  # in CONTROL


def byte_letters():
    """The letter that stands for each byte in byte-level BPE (GPT-2): itself where it can be seen, else one from
    U+0100 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters, hidden = {}, 0
    for byte in range(256):
        if byte in seen:
            letters[byte] = chr(byte)
        else:
            letters[byte] = chr(0x100 + hidden)
            hidden += 1
    return letters


def tokens():
    letters = byte_letters()
    return [letters[b] for b in range(256)] + ["".join(pair) for pair in MERGES] + CONTROL


SIZE = 256 + len(MERGES) + len(CONTROL)


def write(writer, pre):
    """Adds the tokenizer's keys; `pre` names the expression that cuts text into words."""
    kinds = [gguf.TokenType.NORMAL] * (SIZE - len(CONTROL)) + [gguf.TokenType.CONTROL] * len(CONTROL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens())
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_bos_token_id(SIZE - len(CONTROL) + BEGIN)
    writer.add_eos_token_id(SIZE - len(CONTROL) + END)
    writer.add_add_bos_token(False)
