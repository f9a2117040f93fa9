#!/usr/bin/env python3
"""Puts loads over HTTP to Kvasir and to other servers, one after the other in the same rounds, and writes what their
clients saw: a table (report.md), every figure (runs.json) and plots (*.svg).

    shared      --clients at once, a common prefix of 1,024 tokens, 64 of their own, 32 to write; then once more with
                new suffixes. --shape SHARED,OWN,WRITTEN chooses others
    mixed       --requests of lognormal lengths, Poisson arrivals at --rate a second; --lengths sharegpt has answers
                longer than prompts, as ShareGPT's are
    stall       a running stream while a prompt of --prompt tokens is read
    waste       --requests conversations of mixed length at once: KV slots in use that hold no token (Kvasir)
    soak        --seconds of cancels, disconnects, slow readers and retries in a small pool (Kvasir); exit status 1 if
                an answer was lost, hung or wrong, blocks stayed in use, or memory grew
    vllm-bench  the unmodified `vllm bench serve` against Kvasir

    bench/serving/serving_bench.py shared --servers kvasir,llama-server,openvino --rounds 3

A figure is the median of the rounds; every other round goes in the reverse order. `--add` puts rounds to those that
the output folder has. Needs what `make bench-peers` installs, and bench/serving/install_vllm.sh for vLLM.
"""

import argparse
import json
import os
import pathlib
import platform
import shlex
import signal
import sys

import contestants
import measures
import models
import plots
import report
import servers
import soak
import stall
import vllm_bench
import waste
import workloads

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from common import names_of, processor

SMALL_BATCH = ("-b", "128", "-ub", "128")


def say(text):
    print(text, file=sys.stderr, flush=True)


def turns(things, number):
    return things if number % 2 == 0 else things[::-1]


def words_of(options, model, round_number):
    return workloads.Words(options.word_ids, options.seed * 1000 + round_number)


def loads_of(options, words):
    """(name, asks) of each load that a server meets in one round."""
    if options.load == "mixed":
        asks = workloads.mixed(words, options.requests, options.rate, *workloads.LENGTHS[options.lengths])
        return [("mixed" if options.lengths == "short" else f"mixed {options.lengths}", asks)]
    shared, own, tokens = options.shape
    first = workloads.shared_prefix(words, options.clients, shared, own, tokens)
    return [("shared", first), ("shared again", workloads.again(words, first, shared, own))]


def compare(options, model):
    """Yields the records of `shared` or `mixed`, as all others here do: each as soon as there is one."""
    everyone = contestants.contestants(options)
    for number in range(options.first_round, options.first_round + options.rounds):
        named = loads_of(options, words_of(options, model, number))
        for contestant in turns(everyone, number):
            say(f"  round {number + 1}: {contestant.name}")
            outcomes = contestant.run(model, [asks for _, asks in named], log_file(options, contestant.name))
            for (name, asks), outcome in zip(named, outcomes):
                one = contestants.record(contestant, model, name, number, outcome, asks, options.slo)
                say(f"    {name}: {describe(one)}")
                yield one


def describe(one):
    fields = one["fields"]
    keys = ("duration", "output_throughput", "mean_ttft_ms", "max_itl_ms", "failed")
    return ", ".join(f"{key} {fields[key]:.4g}" for key in keys if key in fields)


def stalls(options, model):
    """The stall, with llama-server both as it comes and with its smallest batch."""
    everyone = []
    for name in options.servers:
        if name == "openvino":
            continue
        server = servers.SERVERS[name](options)
        everyone.append((server.name, server))
        if name == "llama-server":
            small = servers.LlamaServer(options)
            small.flags += SMALL_BATCH
            everyone.append(("llama-server, smallest batch", small))
    for number in range(options.first_round, options.first_round + options.rounds):
        for name, server in turns(everyone, number):
            say(f"  round {number + 1}: {name}")
            one = stall.run(server, name, options, model, words_of(options, model, number), log_file(options, name))
            say("    " + ", ".join(f"{key} {value:.4g}" for key, value in one["fields"].items()))
            yield one | {"round": number}


def wastes(options, model):
    for number in range(options.first_round, options.first_round + options.rounds):
        words = words_of(options, model, number)
        asks = workloads.mixed(words, options.requests, 1e6, waste.PROMPT, waste.ANSWER)
        one = waste.run(servers.Kvasir(options), options, model, asks, log_file(options, "Kvasir"))
        say("    " + ", ".join(f"{key} {one['fields'][key]:.4g}" for key in ("waste_mean", "waste_at_peak")))
        yield one | {"round": number}


def soaks(options, model):
    words = words_of(options, model, options.first_round)
    one = soak.run(servers.Kvasir(options), options, model, words, log_file(options, "Kvasir"))
    say("  " + ", ".join(f"{key} {value}" for key, value in one["fields"].items() if key != "resident_mb"))
    yield one | {"round": options.first_round}


def log_file(options, name):
    return options.output / "logs" / f"{options.load}-{name.replace(' ', '-').replace(',', '')}.log"


def keep(options, records):
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "runs.json").write_text(json.dumps(records), encoding="utf-8")


def write(options, records):
    for (load, model), by_server in report.groups(records).items():
        if load in ("waste", "soak"):
            continue
        series = {name: ([t for one in ones for t in one["ttfts_ms"]], [t for one in ones for t in one["itls_ms"]])
                  for (name, _), ones in by_server.items()}
        title = f"{report.TITLES[load]}: {model}"
        picture = options.output / f"{load.replace(' ', '-')}-{model}.svg"
        picture.write_text(plots.draw(title, series), encoding="utf-8")
    machine = f"{processor()}, {options.threads} threads, {platform.system()} {platform.release()}."
    text = report.markdown(machine, records, [measures.__doc__.partition("\n\n")[2]])
    (options.output / "report.md").write_text(text, encoding="utf-8")
    print(text)


def limits(text):
    try:
        return measures.parse_limits(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def pair(text):
    attention, _, repack = text.partition(",")
    if attention not in ("on", "off") or repack not in ("on", "off"):
        raise argparse.ArgumentTypeError("write ATTENTION,REPACK, each on or off")
    return attention, repack


def numbers(text):
    return tuple(int(part) for part in text.split(",") if part)


def add_load_flags(parser):
    parser.add_argument("load", choices=("shared", "mixed", "stall", "waste", "soak", "vllm-bench"))
    parser.add_argument("--model", choices=models.FILES, default="smollm2")
    parser.add_argument("--servers", type=names_of((*servers.SERVERS, "openvino")), default=["kvasir"],
                        help="of kvasir, llama-server, openvino, vllm; the first is what the others are held against")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--first-round", type=int, default=0, help="its number: prompts are drawn from it and --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=16, help="of shared and soak")
    parser.add_argument("--shape", type=numbers, default=(1024, 64, 32), help="of shared: SHARED,OWN,WRITTEN tokens")
    parser.add_argument("--requests", type=int, default=64, help="of mixed and waste")
    parser.add_argument("--rate", type=float, default=8.0, help="arrivals per second in mixed")
    parser.add_argument("--lengths", choices=workloads.LENGTHS, default="short", help="of prompts and answers in mixed")
    parser.add_argument("--closed", type=int, default=0, metavar="N", help="N clients that wait for their answers")
    parser.add_argument("--static", type=numbers, default=(), metavar="N,...",
                        help="also Kvasir in static batches of N, made by the client: the engine has no such policy")
    parser.add_argument("--prompt", type=int, default=4000, help="tokens of the prompt that stalls others")
    parser.add_argument("--events-before", type=int, default=100, help="of the stream, before that prompt comes")
    parser.add_argument("--seconds", type=float, default=600.0, help="of soak")
    parser.add_argument("--slo", type=limits, default={"ttft": 2000.0, "tpot": 200.0},
                        metavar="ttft:MS,tpot:MS,e2el:MS", help="limits that goodput counts by (default: ttft:2000,tpot:200)")


def add_server_flags(parser):
    parser.add_argument("--kvasir", type=pathlib.Path, default=servers.ROOT / "build" / "release" / "kvasir")
    parser.add_argument("--kvasir-flags", type=shlex.split, default=[])
    parser.add_argument("--llama", type=pair, default=("off", "on"), metavar="ATTENTION,REPACK",
                        help="flash attention and repacking, each on or off (default: off,on)")
    parser.add_argument("--llama-flags", type=shlex.split, default=[])
    parser.add_argument("--vllm-flags", type=shlex.split, default=[])
    parser.add_argument("--slots", type=int, help="of llama-server and vLLM (default: --clients, in mixed --requests)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_load_flags(parser)
    add_server_flags(parser)
    parser.add_argument("--output", type=pathlib.Path, default=servers.ROOT / "bench" / "results" / "serving")
    parser.add_argument("--add", action="store_true", help="to the runs of the output folder")
    options = parser.parse_args()
    if len(options.shape) != 3:
        parser.error("--shape takes three numbers: SHARED,OWN,WRITTEN")
    if options.slots is None:
        options.slots = options.requests if options.load == "mixed" else options.clients
    return options


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are ended
    model = models.model_named(options.model)
    if options.load == "vllm-bench":
        return vllm_bench.run(options, model, log_file(options, "Kvasir"))
    options.word_ids = model.word_ids()
    before = options.output / "runs.json"
    records = json.loads(before.read_text(encoding="utf-8")) if options.add and before.exists() else []
    say(f"{options.load}, {options.model}")
    passed = True
    for one in {"stall": stalls, "waste": wastes, "soak": soaks}.get(options.load, compare)(options, model):
        records.append(one)
        keep(options, records)
        passed = passed and one["fields"].get("passed", True)
    write(options, records)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
