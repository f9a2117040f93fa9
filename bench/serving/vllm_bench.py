"""`vllm bench serve`, unmodified, against Kvasir: shows that what others measure servers with works on this one."""

import subprocess

import servers

DATA_SETS = (
    ("--dataset-name", "random", "--random-input-len", "128", "--random-output-len", "64", "--request-rate", "8"),
    ("--dataset-name", "prefix_repetition", "--prefix-repetition-prefix-len", "512", "--prefix-repetition-suffix-len",
     "64", "--prefix-repetition-num-prefixes", "4", "--prefix-repetition-output-len", "32"),
)


def run(options, model, log):
    folder = servers.PEERS / "vllm"
    status = 0
    with servers.Kvasir(options).start(model, 0, 0, log) as running:
        for data_set in DATA_SETS:
            command = [folder / "bin" / "vllm", "bench", "serve", "--backend", "openai", "--base-url", running.url,
                       "--endpoint", "/v1/completions", "--model", "any", "--tokenizer", folder / "models" / model.name,
                       "--num-prompts", options.requests, "--ignore-eos", "--goodput", "ttft:2000", "tpot:200",
                       *data_set]
            print("$", " ".join(str(word) for word in command), flush=True)
            status = status or subprocess.run([str(word) for word in command], cwd=servers.ROOT).returncode
    return status
