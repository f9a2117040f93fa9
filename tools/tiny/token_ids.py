"""Token ids that transformers' own tokenizers give: of those pre-tokenizers whose definition the package carries."""

import pathlib
import sys

import transformers

import vocabulary

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import make_tokenizer_goldens as goldens  # noqa: E402

CLASSES = {
    "command-r": transformers.CohereTokenizer,
    "gpt-2": transformers.GPT2Tokenizer,
    "qwen2": transformers.Qwen2Tokenizer,
}


def lines(pre):
    """For each text of tests/data/tokenizer/torture.txt its number and its ids, without those that this class takes
    for a token of its own."""
    tokens = {token: i for i, token in enumerate(vocabulary.tokens())}
    tokenizer = CLASSES[pre](vocab=tokens, merges=vocabulary.MERGES).backend_tokenizer
    for index, raw in enumerate(goldens.read_texts(goldens.DATA / "torture.txt")):
        try:
            ids = tokenizer.encode(raw.decode(), add_special_tokens=False).ids
        except UnicodeDecodeError:
            continue  # HF takes text only
        if all(i < vocabulary.SIZE for i in ids):
            yield " ".join(map(str, [index, *ids]))
