"""The model files a load can use, and the token ids its prompts are made of."""

import dataclasses
import pathlib
import re

import gguf

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FILES = {
    "smollm2": "smollm2-135m-instruct-q4_1",
    "gemma": "gemma-3-270m-q4_k_m",
    "qwen-0.5b": "qwen2.5-coder-0.5b-instruct-q4_k_m",
    "qwen-1.5b": "qwen2.5-coder-1.5b-instruct-q4_k_m",
}
WORD = re.compile("^[Ġ▁][a-z]{2,9}$")  # a word with the space before it, in either kind of vocabulary
MOST_WORDS = 4096


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    file: pathlib.Path

    def word_ids(self):
        """Ids of ordinary lower-case words, the commonest first."""
        tokens = gguf.GGUFReader(self.file).fields["tokenizer.ggml.tokens"]
        texts = (bytes(tokens.parts[i]).decode("utf-8", "replace") for i in tokens.data)
        ids = [i for i, text in enumerate(texts) if WORD.match(text)]
        return ids[:MOST_WORDS]


def model_named(name):
    return Model(name, ROOT / "models" / f"{FILES[name]}.gguf")
