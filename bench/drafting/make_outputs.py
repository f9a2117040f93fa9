#!/usr/bin/env python3
"""Greedy answers to data/speculation_prompts.json as token ids, one JSON object a line.

What build/bench/bench/drafting_study reads. Starts `kvasir serve MODEL`, asks it everything at once, and ends it. Each line of OUT holds `kind`, `name`,
`prompt` and `output` (token ids; the prompt with the chat template around it).
"""

import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]


def call(url, body=None, timeout=900):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.loads(answer.read() or b"{}")


def wait_until_up(server, base):
    for _ in range(600):
        if server.poll() is not None:
            sys.exit(f"kvasir ended with status {server.returncode} before it answered")
        try:
            call(base + "/v1/models", timeout=2)
            return
        except OSError:
            time.sleep(0.2)
    sys.exit("kvasir did not answer within two minutes")


def ask(base, prompt):
    answer = call(
        base + "/v1/chat/completions",
        {
            "model": "any",
            "messages": [{"role": "user", "content": prompt["ask"]}],
            "temperature": 0,
            "max_tokens": prompt["max_tokens"],
            "return_token_ids": True,
        },
    )
    choice = answer["choices"][0]
    return {
        "kind": prompt["kind"],
        "name": prompt["name"],
        "prompt": choice["prompt_token_ids"],
        "output": choice["token_ids"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--kvasir", default=str(ROOT / "build" / "release" / "kvasir"))
    parser.add_argument("--prompts", type=pathlib.Path, default=ROOT / "data" / "speculation_prompts.json")
    parser.add_argument("--port", type=int, default=8417)
    parser.add_argument("--streams", type=int, default=8)
    args = parser.parse_args()
    prompts = json.loads(args.prompts.read_text(encoding="utf-8"))
    base = f"http://127.0.0.1:{args.port}"
    command = [args.kvasir, "serve", args.model, "--port", str(args.port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_up(server, base)
        with concurrent.futures.ThreadPoolExecutor(args.streams) as pool:
            lines = list(pool.map(lambda prompt: ask(base, prompt), prompts))
    finally:
        server.terminate()
        server.wait()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("w", encoding="utf-8") as out:
        for line in lines:
            out.write(json.dumps(line, separators=(",", ":")) + "\n")
    tokens = sum(len(line["output"]) for line in lines)
    print(f"{args.out}: {len(lines)} answers, {tokens} tokens")


if __name__ == "__main__":
    main()
