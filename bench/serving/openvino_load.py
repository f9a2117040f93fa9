#!/usr/bin/env python3
"""OpenVINO GenAI under a load, without a server: requests go straight into its continuous batching, so HTTP costs it
nothing. Run by contestants.py with the interpreter of .venv-peers.

    openvino_load.py MODEL.gguf --threads N --prefix-cache on|off < LOADS.json

LOADS.json is a list of loads, each a list of {"prompt": ids, "tokens": N, "at": seconds}; the answer, on the last line
of the output, a list of lists of {"arrived", "times", "prompt_tokens", "output_tokens"}, times in seconds.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

import numpy
import openvino
import openvino_genai as genai

CACHE_GB = 4
ROWS_PER_STEP = 2048


def open_pipeline(model, threads, prefix_cache):
    """The pipeline reads folders in OpenVINO's own format, so the file is converted into one first."""
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = CACHE_GB
    scheduler.enable_prefix_caching = prefix_cache
    scheduler.max_num_batched_tokens = ROWS_PER_STEP
    scheduler.dynamic_split_fuse = True
    with tempfile.TemporaryDirectory(prefix="kvasir-openvino-") as folder:
        link = pathlib.Path(folder) / pathlib.Path(model).name
        os.symlink(os.path.realpath(model), link)
        genai.LLMPipeline(str(link), "CPU", enable_save_ov_model=True)
        return genai.ContinuousBatchingPipeline(folder, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads}, {}, {})


def configuration(tokens):
    config = genai.GenerationConfig()
    config.max_new_tokens = config.min_new_tokens = tokens
    config.ignore_eos = True
    config.do_sample = False
    return config


class Load:
    def __init__(self, pipeline, first_id):
        self.pipeline, self.first_id = pipeline, first_id
        self.handles, self.answers = {}, []

    def submit(self, index, ask, arrived):
        ids = numpy.array([ask["prompt"]], dtype=numpy.int64)
        self.handles[index] = self.pipeline.add_request(self.first_id + index, openvino.Tensor(ids),
                                                        configuration(ask["tokens"]))
        self.answers[index] = {"arrived": arrived, "times": [], "prompt_tokens": len(ask["prompt"]),
                               "output_tokens": 0}

    def collect(self):
        now = time.perf_counter()
        for index, handle in self.handles.items():
            while handle.can_read():
                tokens = sum(len(output.generated_ids) for output in handle.read().values())
                self.answers[index]["output_tokens"] += tokens
                self.answers[index]["times"].append(now)

    def run(self, asks):
        self.answers = [None] * len(asks)
        due = sorted(range(len(asks)), key=lambda i: asks[i]["at"])
        start = time.perf_counter()
        while due or self.pipeline.has_non_finished_requests():
            now = time.perf_counter() - start
            while due and asks[due[0]]["at"] <= now:
                index = due.pop(0)
                self.submit(index, asks[index], start + asks[index]["at"])
            if self.pipeline.has_non_finished_requests():
                self.pipeline.step()
                self.collect()
            elif due:
                time.sleep(max(0.0, asks[due[0]]["at"] - (time.perf_counter() - start)))
        wrong = [(ask["tokens"], answer["output_tokens"]) for ask, answer in zip(asks, self.answers)
                 if ask["tokens"] != answer["output_tokens"]]
        if wrong:
            raise SystemExit(f"(asked, written) tokens differ: {wrong[:5]}")
        return self.answers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--prefix-cache", choices=("on", "off"), required=True)
    options = parser.parse_args()
    loads = json.load(sys.stdin)
    pipeline = open_pipeline(options.model, options.threads, options.prefix_cache == "on")
    results, first_id = [], 0
    for asks in loads:
        results.append(Load(pipeline, first_id).run(asks))
        first_id += len(asks)
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
