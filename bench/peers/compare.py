#!/usr/bin/env python3
"""Measures Kvasir and llama.cpp on the same files, in turns, and writes a table.

Prefill of 512 tokens and decode of 64 at batch 1, 8 and 32, without HTTP; then 32 HTTP clients at once, each
with about 128 tokens of prompt and 64 of answer. Every figure is the median of five rounds; in each round the
engines take turns, so a change of the machine's clock meets both. llama.cpp is tried once with flash attention
and repacking on and off, and each test is then measured with the setting that was best at it.

    bench/peers/compare.py [--rounds N] [--threads N] [--models smollm2,...] [--no-http] [--output FILE]

`make bench-peers` builds both engines first. The table goes to bench/results/peers.md.
"""

import argparse
import os
import pathlib
import platform
import statistics
import sys

import engines
import http_load

ROOT = engines.ROOT
MODELS = {
    "smollm2": "smollm2-135m-instruct-q4_1",
    "gemma": "gemma-3-270m-q4_k_m",
    "qwen-0.5b": "qwen2.5-coder-0.5b-instruct-q4_k_m",
    "qwen-1.5b": "qwen2.5-coder-1.5b-instruct-q4_k_m",
}
TESTS = ("pp512", "tg64", "tg64@b8", "tg64@b32")
TITLES = {
    "pp512": "prefill 512",
    "tg64": "decode, batch 1",
    "tg64@b8": "decode, batch 8",
    "tg64@b32": "decode, batch 32",
}
CLIENTS, ANSWER = 32, 64
PORT = 18080


def say(text):
    print(text, file=sys.stderr, flush=True)


def best_variants(engine, model):
    """For each test, the variant that was fastest in one try."""
    if len(engine.variants) == 1:
        return {test: engine.variants[0] for test in TESTS}
    tried = {variant: engine.bench(model, variant) for variant in engine.variants}
    return {test: max(engine.variants, key=lambda variant: tried[variant][test]) for test in TESTS}


def measure_speeds(pair, model, rounds):
    """Samples by engine name and test."""
    best = {engine.name: best_variants(engine, model) for engine in pair}
    samples = {engine.name: {test: [] for test in TESTS} for engine in pair}
    for number in range(rounds):
        for engine in pair if number % 2 == 0 else reversed(pair):
            chosen = best[engine.name]
            for variant in dict.fromkeys(chosen.values()):
                result = engine.bench(model, variant)
                for test in TESTS:
                    if chosen[test] == variant:
                        samples[engine.name][test].append(result[test])
        say(f"  round {number + 1} of {rounds}")
    return samples, best


def measure_http(pair, model, rounds, best, text):
    loads = {engine.name: [] for engine in pair}
    for number in range(rounds):
        for engine in pair if number % 2 == 0 else reversed(pair):
            variant = best[engine.name]["tg64@b32"]
            with engine.serve(model, PORT, CLIENTS, variant) as url:
                loads[engine.name].append(http_load.measure(url, CLIENTS, ANSWER, text, number))
        say(f"  HTTP round {number + 1} of {rounds}")
    return loads


def spread(samples):
    return (max(samples) - min(samples)) / statistics.median(samples)


def table(rows):
    lines = ["| | Kvasir, tokens/s | llama.cpp, tokens/s | ratio | spread |", "|---|---|---|---|---|"]
    for title, ours, theirs in rows:
        a, b = statistics.median(ours), statistics.median(theirs)
        lines.append(f"| {title} | {a:.1f} | {b:.1f} | {a / b:.2f} | {spread(ours):.0%} / {spread(theirs):.0%} |")
    return lines


def describe_http(loads):
    lines = []
    for name, rounds in loads.items():
        first = statistics.median(load.first_token_median for load in rounds)
        gap = statistics.median(load.gap_p99 for load in rounds)
        failed = sum(load.failed for load in rounds)
        lines.append(f"- {name}: median time to first token {first:.2f} s, 99th percentile between pieces "
                     f"{gap * 1000:.0f} ms, {failed} of {CLIENTS * len(rounds)} clients failed")
    return lines


def report_model(pair, name, options, text):
    stem = MODELS[name]
    model = ROOT / "models" / f"{stem}.gguf"
    say(name)
    samples, best = measure_speeds(pair, model, options.rounds)
    ours, theirs = (samples[engine.name] for engine in pair)
    rows = [(TITLES[test], ours[test], theirs[test]) for test in TESTS]
    notes = []
    if options.http:
        loads = measure_http(pair, model, options.rounds, best, text)
        rates = [[load.output_tokens_per_second for load in loads[engine.name]] for engine in pair]
        rows.append((f"{CLIENTS} HTTP clients, output", *rates))
        notes = describe_http(loads)
    accuracy = pair[1].accuracy(model, ROOT / "tests" / "data" / "golden" / f"{stem}.golden")
    settings = ", ".join(f"{TITLES[t]}: flash attention {v[0]}, repacking {'on' if v[1] else 'off'}"
                         for t, v in best["llama.cpp"].items())
    notes.append(f"- llama.cpp's settings: {settings}")
    notes.append(f"- llama.cpp's logits against the golden: mean KL {accuracy['mean_kl']:.2e} nats, 99th percentile "
                 f"{accuracy['p99_kl']:.2e}, top-1 agreement {accuracy['top1']:.1%}")
    return [f"## {stem}", "", *table(rows), "", *notes, ""]


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated: " + ", ".join(MODELS))
    parser.add_argument("--no-http", dest="http", action="store_false")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "bench" / "results" / "peers.md")
    options = parser.parse_args()
    pair = (engines.Kvasir(options.threads), engines.LlamaCpp(options.threads))
    text = (ROOT / "tests" / "data" / "golden" / "text.txt").read_text(encoding="utf-8")
    lines = ["# Kvasir beside llama.cpp", "",
             f"{processor()}, {options.threads} threads, medians of {options.rounds} rounds in turns.", ""]
    for name in options.models.split(","):
        lines += report_model(pair, name, options, text)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
