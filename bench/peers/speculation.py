#!/usr/bin/env python3
"""Measures speculation in Kvasir and llama.cpp: the same files, prompts and drafters, in turns, as one table.

For each pair of a model and a drafter (a smaller model, or n-grams of the text) Kvasir and llama.cpp answer prompts of
data/speculation_prompts.json over HTTP, one at a time and greedily, without and with the drafter. Prompts are read
before, so that what is timed is the answer. llama.cpp is measured with each of its settings for that drafter, and the
fastest for each workload counts; Kvasir chooses for itself. Each round takes the workload's next prompt; every other
round asks in the reverse order. Figures are medians of the rounds. Servers run all the while, and idle servers rest.

    bench/peers/speculation.py [--pairs qwen-1.5b+draft,...] [--workloads code-edit,...] [--rounds N] [--tokens N]
                               [--threads N] [--output FILE]

`make bench-peers` builds and installs the engines first. The table goes to bench/results/peers_speculation.md.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import sys
import time
import urllib.request

import engines
from compare import MODELS, say, turns

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from common import names_of, processor

ROOT = engines.ROOT
PROMPTS = json.loads((ROOT / "data" / "speculation_prompts.json").read_text(encoding="utf-8"))
WORKLOADS = tuple(dict.fromkeys(prompt["kind"] for prompt in PROMPTS))
DRAFT = ROOT / "models" / f"{MODELS['qwen-0.5b']}.gguf"
# By pair: the target, what Kvasir is told, and the settings that are tried in llama.cpp.
NGRAM = tuple(("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", n, "--spec-ngram-simple-size-m", m)
              for n, m in ((3, 3), (3, 8), (12, 48)))
PAIRS = {
    "qwen-1.5b+draft": ("qwen-1.5b", f"draft={DRAFT}",
                        tuple(("--spec-type", "draft-simple", "-md", DRAFT, "--spec-draft-n-max", k)
                              for k in (3, 5))),
    "qwen-1.5b+ngram": ("qwen-1.5b", "ngram", NGRAM),
    "qwen-0.5b+ngram": ("qwen-0.5b", "ngram", NGRAM),
    "smollm2+ngram": ("smollm2", "ngram", NGRAM),
}
PORT = 18100
CONTEXT = 2048


def llama_name(setting):
    """The numbers of a setting: what differs between those of one drafter."""
    return "/".join(str(word) for word in setting if isinstance(word, int)) if setting else "plain"


@dataclasses.dataclass
class Contestant:
    engine: str
    setting: str  # "plain", or how it speculates
    url: str
    extra: dict = dataclasses.field(default_factory=dict)  # in the body of requests

    def post(self, body):
        request = urllib.request.Request(self.url + "/v1/chat/completions", data=json.dumps(body | self.extra).encode(),
                                         headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.loads(answer.read())

    def answer(self, prompt, tokens):
        """(tokens per second, text) of one answer whose prompt was read before."""
        body = {"model": "any", "messages": [{"role": "user", "content": prompt}], "temperature": 0}
        self.post(body | {"max_tokens": 1})
        start = time.monotonic()
        answer = self.post(body | {"max_tokens": tokens})
        seconds = time.monotonic() - start
        return answer["usage"]["completion_tokens"] / seconds, answer["choices"][0]["message"]["content"]


@contextlib.contextmanager
def contestants(pair, threads):
    """All of a pair, with their servers running. The two of Kvasir share one, where a request may refuse drafts."""
    target, drafter, settings = PAIRS[pair]
    model = ROOT / "models" / f"{MODELS[target]}.gguf"
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(engines.server(
            [ROOT / "build" / "release" / "kvasir", "serve", model, "--port", PORT, "--threads", threads,
             "--max-num-seqs", 4, "--max-model-len", CONTEXT, "--speculate", drafter], PORT))
        able = [Contestant("Kvasir", "plain", url, {"speculate": "off"}), Contestant("Kvasir", "speculating", url)]
        for number, setting in enumerate(((),) + settings, start=1):
            url = stack.enter_context(engines.server(
                [engines.LlamaCpp(threads).bin / "llama-server", "-m", model, "--port", PORT + number, "-t", threads,
                 "-np", 1, "-c", CONTEXT, "-fa", "off", *setting], PORT + number))
            able.append(Contestant("llama.cpp", llama_name(setting), url))
        yield able


@dataclasses.dataclass
class Measured:
    speeds: list = dataclasses.field(default_factory=list)
    differing: int = 0  # answers whose text is not that of the same engine without speculation


def measure(able, workload, rounds, tokens):
    """By (engine, setting)."""
    prompts = [prompt["ask"] for prompt in PROMPTS if prompt["kind"] == workload]
    results = {(c.engine, c.setting): Measured() for c in able}
    for number in range(rounds):
        texts = {}
        for contestant in turns(able, number):
            key = (contestant.engine, contestant.setting)
            speed, texts[key] = contestant.answer(prompts[number % len(prompts)], tokens)
            results[key].speeds.append(speed)
        for (engine, setting), text in texts.items():
            results[engine, setting].differing += text != texts[engine, "plain"]
        say(f"  {workload}, round {number + 1} of {rounds}")
    return results


def row(pair, workload, results, rounds):
    medians = {key: statistics.median(measured.speeds) for key, measured in results.items()}
    theirs = max((key for key in medians if key[0] == "llama.cpp" and key[1] != "plain"), key=medians.get)
    ours = ("Kvasir", "speculating")
    plain = {engine: medians[engine, "plain"] for engine in ("Kvasir", "llama.cpp")}
    their_best = max(medians[theirs], plain["llama.cpp"])
    cells = [pair, workload, f"{plain['Kvasir']:.1f}", f"{medians[ours]:.1f}", f"{medians[ours] / plain['Kvasir']:.2f}",
             f"{plain['llama.cpp']:.1f}", f"{medians[theirs]:.1f} ({theirs[1]})",
             f"{medians[theirs] / plain['llama.cpp']:.2f}", f"{medians[ours] / medians[theirs]:.2f}",
             f"{medians[ours] / their_best:.2f}",
             f"{results[ours].differing} / {results[theirs].differing} of {rounds}"]
    return f"| {' | '.join(cells)} |"


def head(options):
    titles = ["", "workload", "Kvasir plain", "speculating", "gain", "llama.cpp plain", "speculating (setting)", "gain",
              "Kvasir / llama.cpp", "over its faster", "texts changed"]
    return ["# Speculation side by side", "",
            f"{processor()}, {options.threads} threads; tokens per second of answers of up to {options.tokens} tokens, "
            f"one at a time, greedy; medians of {options.rounds} rounds in turns.", "",
            f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]


FOOT = ["", "llama.cpp's settings: for a draft model the most tokens drafted; for n-grams (ngram-simple) the length of "
        "the n-gram and of the draft; flash attention is off, which is faster here. \"Over its faster\" is over llama.cpp "
        "with or without speculation, whichever is faster. \"Texts changed\": greedy answers that are not those of the "
        "same engine without speculation, of Kvasir / of llama.cpp.", ""]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=names_of(PAIRS), default=list(PAIRS),
                        help="comma-separated: " + ", ".join(PAIRS))
    parser.add_argument("--workloads", type=names_of(WORKLOADS), default=list(WORKLOADS),
                        help="comma-separated: " + ", ".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "bench" / "results" / "peers_speculation.md")
    return parser.parse_args()


def main():
    options = arguments()
    lines = head(options)
    print("\n".join(lines), flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    for pair in options.pairs:
        say(pair)
        with contestants(pair, options.threads) as able:
            for workload in options.workloads:
                lines.append(row(pair, workload, measure(able, workload, options.rounds, options.tokens),
                                 options.rounds))
                print(lines[-1], flush=True)
                options.output.write_text("\n".join(lines + FOOT), encoding="utf-8")
    print("\n".join(FOOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
