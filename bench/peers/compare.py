#!/usr/bin/env python3
"""Measures Kvasir, llama.cpp and OpenVINO GenAI on the same files, in turns, and writes a table.

Prefill of 512 tokens and decode of 64 at batch 1, 8 and 32, without HTTP; with --long also 8 sequences of 2,048
tokens (prefill and decode) and decode after 4,096 tokens; then 32 HTTP clients at once, each with about 128
tokens of prompt and 64 of answer, for the engines that have a server. Every figure is the median of five rounds;
in each round the engines take turns, so a change of the machine's clock meets all. llama.cpp is tried once with
flash attention and repacking on and off, and each test is then measured with the setting that was best at it. An
engine that cannot open a file is named in the table and left out.

    bench/peers/compare.py [--engines kvasir,...] [--models smollm2,...] [--long | --tests pp512,...]
                           [--rounds N] [--threads N] [--no-http] [--output FILE]

`--models moe` is a mixture of experts with random weights, which make_moe.py writes; `--models mla` is SmolLM2 with
latent attention of rank 128, which tools/mla/make_mla_model.py writes (docs/mla.md), both into models/.
`make bench-peers` builds and installs the engines first. The table goes to bench/results/peers.md. The long tests
take an hour for the four models.
"""

import argparse
import os
import pathlib
import statistics
import sys

import engines
import http_load

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from common import names_of, processor

ROOT = engines.ROOT
MODELS = {
    "smollm2": "smollm2-135m-instruct-q4_1",
    "gemma": "gemma-3-270m-q4_k_m",
    "qwen-0.5b": "qwen2.5-coder-0.5b-instruct-q4_k_m",
    "qwen-1.5b": "qwen2.5-coder-1.5b-instruct-q4_k_m",
}
MADE = {"moe": "random-moe", "mla": "smollm2-mla-128"}  # by our tools; measured only where they are named
TITLES = {
    "pp512": "prefill 512",
    "tg64": "decode, batch 1",
    "tg64@b8": "decode, batch 8",
    "tg64@b32": "decode, batch 32",
    "pp2048@b8": "prefill 8 × 2,048",
    "tg64@b8@d2048": "decode, batch 8 after 2,048",
    "tg64@d4096": "decode, batch 1 after 4,096",
}
CLIENTS, ANSWER = 32, 64
PORT = 18080


def say(text):
    print(text, file=sys.stderr, flush=True)


def turns(all_engines, number):
    """The order of a round: every other one is the reverse."""
    return all_engines if number % 2 == 0 else all_engines[::-1]


def fastest(engine, model, variants, tests):
    """For each test, the variant that was fastest in one try."""
    if len(variants) == 1:
        return {test: variants[0] for test in tests}
    tried = {variant: engine.bench(model, variant, tests) for variant in variants}
    return {test: max(variants, key=lambda variant: tried[variant][test]) for test in tests}


def best_variants(engine, model, tests):
    """The best setting for each test; what was best at reading 512 tokens narrows those tried in long tests."""
    short = [test for test in tests if test in engines.SHORT_TESTS]
    long = [test for test in tests if test in engines.LONG_TESTS]
    best = fastest(engine, model, engine.variants, short or engines.SHORT_TESTS[:1])
    if long:
        best |= fastest(engine, model, engine.long_variants(best), long)
    return {test: best[test] for test in tests}


def openers(all_engines, model, tests):
    """The engines that can run the file, by name with their best settings; and why the others cannot."""
    best, refused = {}, {}
    for engine in all_engines:
        say(f"  trying {engine.name}")
        try:
            engine.bench(model, engine.variants[0], engines.SHORT_TESTS[:1])
            best[engine.name] = best_variants(engine, model, tests)
        except engines.Refused as why:
            refused[engine.name] = str(why)
            say(f"  {engine.name} cannot open it: {why}")
    return best, refused


def measure_speeds(able, model, rounds, best):
    """Samples by engine name and test."""
    samples = {engine.name: {test: [] for test in best[engine.name]} for engine in able}
    for number in range(rounds):
        for engine in turns(able, number):
            chosen = best[engine.name]
            for variant in dict.fromkeys(chosen.values()):
                tests = [test for test in chosen if chosen[test] == variant]
                for test, speed in engine.bench(model, variant, tests).items():
                    samples[engine.name][test].append(speed)
        say(f"  round {number + 1} of {rounds}")
    return samples


def measure_http(able, model, rounds, best, text):
    servers = [engine for engine in able if engine.serve]
    loads = {engine.name: [] for engine in servers}
    for number in range(rounds):
        for engine in turns(servers, number):
            variant = best[engine.name].get("tg64@b32", engine.variants[0])
            with engine.serve(model, PORT, CLIENTS, variant) as url:
                loads[engine.name].append(http_load.measure(url, CLIENTS, ANSWER, text, number))
        say(f"  HTTP round {number + 1} of {rounds}")
    return loads


def spread(samples):
    return (max(samples) - min(samples)) / statistics.median(samples)


def table(names, rows, refused):
    """rows: (title, samples by engine name). The first engine is compared with each of the others."""
    first, others = names[0], names[1:]
    titles = [""] + [f"{name}, tokens/s" for name in names] + [f"{first} / {name}" for name in others] + ["spread"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for title, samples in rows:
        medians = {name: statistics.median(values) for name, values in samples.items()}
        missing = {name: "cannot open" if name in refused else "–" for name in names}
        cells = [title] + [f"{medians[name]:.1f}" if name in medians else missing[name] for name in names]
        cells += [f"{medians[first] / medians[name]:.2f}" if {first, name} <= medians.keys() else "–"
                  for name in others]
        cells.append(" / ".join(f"{spread(samples[name]):.0%}" for name in names if name in samples))
        lines.append(f"| {' | '.join(cells)} |")
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


def describe_settings(able, best):
    for engine in able:
        if len(engine.variants) > 1:
            settings = "; ".join(f"{TITLES[test]}: {engine.describe(v)}" for test, v in best[engine.name].items())
            yield f"- {engine.name}'s settings: {settings}"


def describe_accuracy(engine, model, stem):
    accuracy = engine.accuracy(model, ROOT / "tests" / "data" / "golden" / f"{stem}.golden")
    return (f"- {engine.name}'s logits against the golden: mean KL {accuracy['mean_kl']:.2e} nats, 99th percentile "
            f"{accuracy['p99_kl']:.2e}, top-1 agreement {accuracy['top1']:.1%}")


def report_model(all_engines, name, options, text):
    stem = (MODELS | MADE)[name]
    model = ROOT / "models" / f"{stem}.gguf"
    say(name)
    best, refused = openers(all_engines, model, options.tests)
    able = [engine for engine in all_engines if engine.name in best]
    notes = [f"- {engine} cannot open this file: {why}" for engine, why in refused.items()]
    if not able:
        return [f"## {stem}", "", *notes, ""]
    samples = measure_speeds(able, model, options.rounds, best)
    rows = [(TITLES[test], {engine.name: samples[engine.name][test] for engine in able}) for test in options.tests]
    if options.http:
        loads = measure_http(able, model, options.rounds, best, text)
        rates = {engine: [load.output_tokens_per_second for load in loads[engine]] for engine in loads}
        if rates:
            rows.append((f"{CLIENTS} HTTP clients, output", rates))
        notes += describe_http(loads)
    notes += describe_settings(able, best)
    if name in MODELS:
        notes += [describe_accuracy(engine, model, stem) for engine in able if hasattr(engine, "accuracy")]
    lines = table([engine.name for engine in all_engines], rows, refused)
    return [f"## {stem}", "", *lines, "", *([*notes, ""] if notes else [])]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--engines", type=names_of(engines.ENGINES), default=list(engines.ENGINES),
                        help="comma-separated: " + ", ".join(engines.ENGINES))
    parser.add_argument("--models", type=names_of(MODELS | MADE), default=list(MODELS),
                        help="comma-separated: " + ", ".join(MODELS | MADE))
    parser.add_argument("--long", action="store_const", const=list(TITLES), dest="tests",
                        help="also 8 sequences of 2,048 tokens, and one of 4,096")
    parser.add_argument("--tests", type=names_of(TITLES), default=list(engines.SHORT_TESTS),
                        help="comma-separated: " + ", ".join(TITLES))
    parser.add_argument("--no-http", dest="http", action="store_false")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "bench" / "results" / "peers.md")
    return parser.parse_args()


def main():
    options = arguments()
    chosen = [engines.ENGINES[name](options.threads) for name in options.engines]
    text = (ROOT / "tests" / "data" / "golden" / "text.txt").read_text(encoding="utf-8")
    names = ", ".join(engine.name for engine in chosen)
    lines = [f"# Engines side by side: {names}", "",
             f"{processor()}, {options.threads} threads, medians of {options.rounds} rounds in turns.", ""]
    for name in options.models:
        lines += report_model(chosen, name, options, text)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
