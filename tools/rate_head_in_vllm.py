#!/usr/bin/env python3
"""Tokens per step that a draft head gives in vLLM's modules: what a step of three guesses yields on average along the
model's own greedy answers to the prompts of tests/speculation/heads_test.cc.

    bench/serving/install_vllm.sh   # and SmolLM2-135M, dequantised
    .venv/bin/python tools/head_to_vllm.py data/heads/smollm2-135m-instruct.eagle.safetensors \\
      models/smollm2-135m-instruct-q4_1.gguf build/smollm2-eagle
    .venv-peers/vllm/bin/python tools/rate_head_in_vllm.py .venv-peers/vllm/models/smollm2 \\
      build/smollm2-eagle eagle
"""

import argparse
import pathlib
import sys

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "head_goldens"))
import vllm_heads  # noqa: E402

PROMPTS = [
    "My bicycle's chain keeps jumping when I pedal hard uphill. What could be the reasons?",
    "I sleep badly before exams. Give me some advice.",
    "How do I read a large CSV file in Python without loading all of it into memory?",
    "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
    "What is the difference between INNER JOIN and LEFT JOIN?",
    "Write a friendly email to my landlord asking whether I may paint the living room.",
]
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def answers(model, count):
    """Token ids of prompt and greedy answer, and where the answer begins."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    target = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    for prompt in PROMPTS:
        text = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
        ids = tokenizer(text, return_tensors="pt").input_ids
        with torch.inference_mode():
            yield target.generate(ids, max_new_tokens=count, do_sample=False)[0], ids.shape[1]


def tokens_per_step(drafter, ids, begin, guesses):
    """Tokens and steps: each step gives the guesses that are right, up to the first wrong one, and a token more."""
    features = drafter.features(ids)
    at, steps = begin + 1, 0
    while at < len(ids):
        drafts = drafter.draft(ids[:at], features[:at - 1], guesses).argmax(-1)[:len(ids) - at]
        right = int((drafts == ids[at:at + len(drafts)]).cumprod(0).sum())
        at, steps = at + right + 1, steps + 1
    return at - begin - 1, steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of the target, as transformers and vLLM read it")
    parser.add_argument("head", help="folder of the head, as vLLM reads it")
    parser.add_argument("kind", choices=["eagle", "eagle3", "medusa"])
    parser.add_argument("--guesses", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=100, help="of an answer")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = list(answers(options.model, options.tokens))
    heads = {} if options.kind != "medusa" else {"guesses": options.guesses}
    drafter = vllm_heads.VllmHead(options.model, options.head, options.kind, dtype=options.dtype, length=512, **heads)
    counts = [tokens_per_step(drafter, ids, begin, options.guesses) for ids, begin in texts]
    tokens, steps = (sum(column) for column in zip(*counts))
    print(f"{options.head}: {tokens / steps:.3f} tokens per step, {options.guesses} guesses, {tokens} tokens")


if __name__ == "__main__":
    main()
