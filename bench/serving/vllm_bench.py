"""`vllm bench serve`, unmodified, against Kvasir: shows that what others measure servers with works on this one."""

import json
import subprocess

import servers

DATA_SETS = {
    "random": ("--random-input-len", "128", "--random-output-len", "64", "--request-rate", "8"),
    "prefix_repetition": ("--prefix-repetition-prefix-len", "512", "--prefix-repetition-suffix-len", "64",
                          "--prefix-repetition-num-prefixes", "4", "--prefix-repetition-output-len", "32"),
}
# It may say nothing of requests that failed but their number.
DONE = ("completed", "failed")


def run(options, model, log):
    """Exit status 1 if a request failed in any data set. Each one's figures go to vllm-bench-NAME.json."""
    folder = servers.PEERS / "vllm"
    status = 0
    with servers.Kvasir(options).start(model, 0, 0, log) as running:
        for name, shape in DATA_SETS.items():
            result = f"vllm-bench-{name}.json"
            command = [folder / "bin" / "vllm", "bench", "serve", "--backend", "openai", "--base-url", running.url,
                       "--endpoint", "/v1/completions", "--model", "any", "--tokenizer", folder / "models" / model.name,
                       "--num-prompts", options.requests, "--ignore-eos", "--goodput", "ttft:2000", "tpot:200",
                       "--save-result", "--result-dir", options.output.absolute(), "--result-filename", result,
                       "--dataset-name", name, *shape]
            print("$", " ".join(str(word) for word in command), flush=True)
            ended = subprocess.run([str(word) for word in command], cwd=servers.ROOT).returncode
            done = json.loads((options.output / result).read_text(encoding="utf-8")) if ended == 0 else {}
            print(f"{name}: " + ", ".join(f"{key} {done.get(key, 'not known')}" for key in DONE), flush=True)
            if done.get("failed") != 0 or done.get("completed") != options.requests:
                status = 1
    return status
