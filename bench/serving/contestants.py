"""Who takes part in a round and how a load is put to them: over HTTP, in static batches over HTTP, or straight into
OpenVINO's pipeline. Each `run(model, loads, log)` gives one Outcome per load; the loads of one call meet the same
process one after the other.
"""

import asyncio
import dataclasses
import json
import subprocess
import time

import events
import loads
import measures
import servers
import wire
import workloads

SLOT_STEP = 512  # slots of llama-server hold a multiple of so many tokens
REST = 2         # seconds without requests that every load finds a server after, as most of a day's first ones do
COUNTERS = ("kvasir_computed_tokens_total", "vllm:prefix_cache_hits_total", "vllm:num_preemptions_total",
            "kvasir_steps_total", "kvasir_step_seconds_total")


@dataclasses.dataclass
class Outcome:
    answers: list
    fields: dict   # beside those of measures.summarise


class CpuShares:
    """Cores in use from now on, on average: by the server, by this client, and by all others, who disturb (other virtual
    machines on the same cores among them)."""

    def __init__(self, running):
        self.running, self.begin = running, self.now(running)

    def now(self, running):
        return (time.perf_counter(), running.cpu_seconds() if running else 0.0, time.process_time(),
                servers.machine_cpu_seconds())

    def fields(self):
        seconds, server, client, machine = (b - a for a, b in zip(self.begin, self.now(self.running)))
        return {"server_cpu_share": server / seconds, "client_cpu_share": client / seconds,
                "other_cpu_share": max(0.0, machine - server - client) / seconds}


class OverHttp:
    """A server and the way requests are put to it. `send(url, asks)` gives raw exchanges."""

    def __init__(self, server, options, send=loads.open_loop, suffix="", useful=False):
        self.server, self.slots = server, options.slots
        self.send = send
        self.name = server.name + suffix
        self.useful = useful

    def settings(self):
        return self.server.settings()

    def run(self, model, all_asks, log):
        with self.server.start(model, self.slots, slot_tokens(all_asks), log) as running:
            warm_up(running, all_asks[0][0])
            return [self.one_load(running, asks) for asks in all_asks]

    def one_load(self, running, asks):
        time.sleep(REST)
        before, shares = counters(running), CpuShares(running)
        raws = asyncio.run(self.send(running.url, asks))
        fields = shares.fields() | {"latest_send_ms": 1000 * max(raw.sent - raw.arrived for raw in raws)}
        after = counters(running)
        fields |= {name: after[name] - before[name] for name in after if name in before}
        answers = [events.answer_of(raw) for raw in raws]
        for answer, ask in zip(answers, asks):
            if answer.finished and answer.prompt_tokens != len(ask.prompt):
                answer.error = f"{answer.prompt_tokens} prompt tokens instead of {len(ask.prompt)}"
            if answer.finished and answer.output_tokens != ask.tokens and not self.useful:
                answer.error = f"{answer.output_tokens} tokens instead of {ask.tokens}"
        return Outcome(answers, fields)


def slot_tokens(all_asks):
    """What a slot must hold: the longest prompt with its answer."""
    longest = max(len(ask.prompt) + ask.tokens for asks in all_asks for ask in asks)
    return SLOT_STEP * max(3, longest // SLOT_STEP + 1)


def warm_up(running, ask):
    """One short answer to a prompt that shares no beginning with the load's."""
    short = workloads.Ask(tuple(reversed(ask.prompt[-16:])), 4)
    answer = events.answer_of(asyncio.run(wire.post(running.url, loads.PATH, workloads.body(short), timeout=120)))
    if not answer.finished:
        raise RuntimeError(f"the first request failed: {answer.error}")


def counters(running):
    """Those of COUNTERS that the server has."""
    try:
        values = running.metrics()
    except OSError:
        return {}
    return {name: values[name] for name in COUNTERS if name in values}


class OpenVino:
    def __init__(self, options, prefix_cache):
        self.threads, self.prefix_cache = options.threads, prefix_cache
        self.name = f"OpenVINO, prefix cache {prefix_cache}"

    def settings(self):
        return "no HTTP, 2,048 rows per step, dynamic split-fuse, 4 GiB of KV cache"

    def run(self, model, all_asks, log):
        script = servers.ROOT / "bench" / "serving" / "openvino_load.py"
        command = [servers.PEERS / "bin" / "python", script, model.file, "--threads", self.threads, "--prefix-cache",
                   self.prefix_cache]
        text = json.dumps([[dataclasses.asdict(ask) for ask in asks] for asks in all_asks])
        done = subprocess.run([str(word) for word in command], input=text, capture_output=True, text=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(done.stdout[-2000:] + done.stderr)
        if done.returncode != 0:
            raise RuntimeError(f"OpenVINO failed: {done.stderr.strip()[-2000:]}")
        loads_answered = json.loads(done.stdout.splitlines()[-1])
        return [Outcome([self.answer(one) for one in answers], {}) for answers in loads_answered]

    def answer(self, one):
        return events.Answer(sent=one["arrived"], finished=True, status=200, **one)


def static_sender(size, padded):
    async def send(url, asks):
        return await loads.static_batches(url, asks, size, padded)
    return send


def closed_sender(clients):
    async def send(url, asks):
        return await loads.closed_loop(url, asks, clients)
    return send


def contestants(options):
    """By --servers, in that order; with --static also Kvasir in static batches."""
    found = []
    for name in options.servers:
        if name == "openvino":
            found += [OpenVino(options, "on"), OpenVino(options, "off")]
            continue
        server = servers.SERVERS[name](options)
        send = closed_sender(options.closed) if options.closed else loads.open_loop
        found.append(OverHttp(server, options, send))
        if name == "kvasir":
            for size in options.static:
                for padded in (True, False):
                    suffix = f", static batches of {size}" + (", padded" if padded else "")
                    found.append(OverHttp(server, options, static_sender(size, padded), suffix, useful=True))
    return found


def record(contestant, model, load, round_number, outcome, asks, limits):
    """What is kept of one load."""
    useful = [ask.tokens for ask in asks] if getattr(contestant, "useful", False) else None
    fields = measures.summarise(outcome.answers, limits, useful)
    errors = [answer.error for answer in outcome.answers if answer.error]
    return {"load": load, "model": model.name, "server": contestant.name, "settings": contestant.settings(),
            "round": round_number, "fields": fields | outcome.fields, "errors": errors[:5],
            **measures.samples(outcome.answers)}
