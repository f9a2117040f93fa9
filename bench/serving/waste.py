"""Slots of KV blocks in use that hold no token, sampled from /metrics while many conversations of mixed length run."""

import asyncio
import threading
import time

import contestants
import events
import loads
import measures

EVERY_S = 0.1
PROMPT = (400, 0.8, 32, 2048)  # median, sigma, least, most tokens
ANSWER = (128, 0.7, 16, 512)


class Sampler(threading.Thread):
    def __init__(self, running):
        super().__init__(daemon=True)
        self.running, self.stop, self.samples = running, threading.Event(), []

    def run(self):
        while not self.stop.wait(EVERY_S):
            metrics = self.running.metrics()
            self.samples.append((time.perf_counter(), metrics["kvasir_kv_blocks{state=\"used\"}"],
                                 metrics["kvasir_kv_waste_ratio"], metrics["vllm:num_requests_running"]))


def weighted(samples):
    """(mean waste weighted by blocks used, waste when most blocks were used, most blocks used)"""
    used = sum(blocks for _, blocks, _, _ in samples)
    peak = max(samples, key=lambda sample: sample[1])
    return sum(blocks * waste for _, blocks, waste, _ in samples) / used, peak[2], peak[1]


def run(server, options, model, asks, log):
    with server.start(model, len(asks), 0, log) as running:
        contestants.warm_up(running, asks[0])
        sampler, shares = Sampler(running), contestants.CpuShares(running)
        sampler.start()
        answers = [events.answer_of(raw) for raw in asyncio.run(loads.open_loop(running.url, asks))]
        sampler.stop.set()
        sampler.join()
        cpu = shares.fields()
    samples = [sample for sample in sampler.samples if sample[1] > 0]
    mean, at_peak, peak = weighted(samples)
    fields = measures.summarise(answers) | cpu | {
        "waste_mean": mean, "waste_at_peak": at_peak, "blocks_at_peak": peak, "samples": len(samples),
        "most_running": max(sample[3] for sample in samples)}
    return {"load": "waste", "model": model.name, "server": server.name, "settings": server.settings(),
            "fields": fields, "errors": [answer.error for answer in answers if answer.error][:5],
            **measures.samples(answers)}
