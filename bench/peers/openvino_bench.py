#!/usr/bin/env python3
"""Times OpenVINO GenAI on a GGUF file; run by engines.py with the interpreter of .venv-peers.

    openvino_bench.py MODEL --threads N --tests pp512,tg64,tg64@b8,...

Writes one JSON object: tokens per second by test, named as `kvasir bench` names them. Prompts are fixed token
ids, a different one for every sequence and every run, and the prefix cache is off, so nothing is found again. A
prefill is the time until every sequence has its first token; a decode, the time of the tokens after the first.
Every test runs once before it is timed, as those of the other engines do.
"""

import argparse
import json
import re
import sys
import time

import numpy
import openvino
import openvino_genai as genai

NAME = re.compile(r"^(pp|tg)(\d+)(?:@b(\d+))?(?:@d(\d+))?$")
SHORT_PROMPT = 16  # what a decode without a depth starts from
CACHE_GB = 4


def parse(name):
    """(is a prefill, tokens, batch, depth)"""
    match = NAME.match(name)
    if not match:
        raise SystemExit(f"unknown test {name}")
    kind, tokens, batch, depth = match.groups()
    return kind == "pp", int(tokens), int(batch or 1), int(depth or 0)


class Engine:
    def __init__(self, model, threads):
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = CACHE_GB
        scheduler.enable_prefix_caching = False
        scheduler.max_num_batched_tokens = 2048
        scheduler.dynamic_split_fuse = True
        self.pipeline = genai.LLMPipeline(model, "CPU", scheduler_config=scheduler,
                                          INFERENCE_NUM_THREADS=threads)
        self.runs = 0

    def seconds(self, batch, prompt, generate):
        """Time to read `batch` prompts and write `generate` tokens after each."""
        self.runs += 1
        ids = [[100 + (self.runs * 7919 + s * 104729 + p * 31) % 30000 for p in range(prompt)] for s in range(batch)]
        config = genai.GenerationConfig()
        config.max_new_tokens = generate
        config.min_new_tokens = generate
        config.ignore_eos = True
        config.do_sample = False
        inputs = genai.TokenizedInputs(openvino.Tensor(numpy.array(ids, dtype=numpy.int64)),
                                       openvino.Tensor(numpy.ones((batch, prompt), dtype=numpy.int64)))
        started = time.perf_counter()
        result = self.pipeline.generate(inputs, config)
        elapsed = time.perf_counter() - started
        if any(len(tokens) != generate for tokens in result.tokens):
            raise SystemExit(f"{[len(tokens) for tokens in result.tokens]} tokens instead of {generate} each")
        return elapsed

    def rate(self, prefill, tokens, batch, depth):
        if prefill:
            return tokens * batch / self.seconds(batch, tokens, 1)
        prompt = depth or SHORT_PROMPT
        first = self.seconds(batch, prompt, 1)
        return tokens * batch / (self.seconds(batch, prompt, tokens + 1) - first)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--tests", required=True)
    options = parser.parse_args()
    tests = {name: parse(name) for name in options.tests.split(",")}
    engine = Engine(options.model, options.threads)
    speeds = {}
    for name, test in tests.items():
        engine.rate(*test)
        speeds[name] = engine.rate(*test)
    print(json.dumps(speeds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
