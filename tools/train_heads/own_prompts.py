#!/usr/bin/env python3
"""Has a model that `kvasir serve` serves make up what users might ask it, one prompt a line: it goes on from where the
user speaks in its chat template (Magpie, arXiv 2406.08464). The same seed gives the same prompts.

    kvasir serve model.gguf --port 8001
    own_prompts.py --url http://127.0.0.1:8001 --count 2000 --output own.txt
"""

import argparse
import concurrent.futures
import json
import time
import urllib.request

BEGINNING = """<|im_start|>system
You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>
<|im_start|>user
"""


def ask(url, beginning, seed, temperature):
    """One prompt; its end is the end of the user's turn, and what has none within 80 tokens is no prompt."""
    body = {"prompt": beginning, "max_tokens": 80, "temperature": temperature, "top_p": 0.98, "seed": seed}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        choice = json.load(answer)["choices"][0]
    text = choice["text"].strip()
    good = choice["finish_reason"] == "stop" and len(text) >= 12 and "\ufffd" not in text
    return text if good else None


def wait_for(url, seconds=60):
    """Until the server is there."""
    end = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(url + "/health", timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise SystemExit(f"no server at {url} within {seconds} s: {error}") from error
        time.sleep(0.2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="of `kvasir serve`")
    parser.add_argument("--count", type=int, default=2000, help="how often to ask")
    parser.add_argument("--seed", type=int, default=1, help="of the first; the next one's is one more")
    parser.add_argument("--temperature", type=float, default=0.85)
    parser.add_argument("--beginning", help="file with the template up to the user's text, if not SmolLM2's")
    parser.add_argument("--output", required=True, help="file to write, one JSON string a line")
    args = parser.parse_args()
    beginning = BEGINNING if args.beginning is None else open(args.beginning, encoding="utf-8").read()
    wait_for(args.url)
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        made = list(pool.map(lambda i: ask(args.url, beginning, args.seed + i, args.temperature), range(args.count)))
    prompts = list(dict.fromkeys(prompt for prompt in made if prompt is not None))
    with open(args.output, "w", encoding="utf-8") as out:
        out.writelines(json.dumps(prompt, ensure_ascii=False) + "\n" for prompt in prompts)
    print(f"{args.output}: {len(prompts)} different prompts of {args.count}")


if __name__ == "__main__":
    main()
