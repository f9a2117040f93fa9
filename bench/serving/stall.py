"""A running stream while somebody else's long prompt is read: its gaps before and during.

"Before" are the gaps up to the moment the prompt is sent, without the first few; "during", those that end after that
moment and begin before the prompt's first token: so the gap that is open when the prompt comes counts whole.
"""

import asyncio
import statistics

import contestants
import events
import loads
import measures
from workloads import Ask

WARM_EVENTS = 10


def gaps(stream, sent, answered):
    """(before, during) in seconds."""
    times = stream.times
    pairs = list(zip(times, times[1:]))
    before = [b - a for a, b in pairs[WARM_EVENTS:] if b <= sent]
    during = [b - a for a, b in pairs if b > sent and a < answered]
    return before, during


def measure(running, words, prompt_tokens, events_before):
    stream = Ask(words.draw(32), 4000)
    prompt = Ask(words.draw(prompt_tokens), 1)
    raw_stream, raw_prompt = asyncio.run(loads.stream_beside_prompt(running.url, stream, prompt, events_before))
    answer, reading = events.answer_of(raw_stream), events.answer_of(raw_prompt)
    if reading.error or answer.error:
        raise RuntimeError(f"the stream: {answer.error or 'fine'}; the prompt: {reading.error or 'fine'}")
    before, during = gaps(answer, raw_prompt.sent, reading.times[0])
    median = statistics.median(before)
    return {
        "median_gap_before_ms": 1000 * median, "max_gap_before_ms": 1000 * max(before),
        "gaps_during": len(during), "median_gap_during_ms": 1000 * statistics.median(during),
        "p99_gap_during_ms": 1000 * measures.percentile(during, 99), "max_gap_during_ms": 1000 * max(during),
        "max_during_over_median_before": max(during) / median,
        "max_during_over_median_during": max(during) / statistics.median(during),
        "prompt_ttft_ms": 1000 * (reading.times[0] - reading.sent), "prompt_tokens": reading.prompt_tokens,
    }, {"ttfts_ms": [], "itls_ms": [round(1000 * gap, 2) for gap in during]}


def run(server, name, options, model, words, log):
    """One record. `server` as in servers.py."""
    with server.start(model, 2, options.prompt + 4096 + 64, log) as running:
        contestants.warm_up(running, Ask(words.draw(32), 1))
        shares = contestants.CpuShares(running)
        fields, samples = measure(running, words, options.prompt, options.events_before)
        cpu = shares.fields()
    return {"load": "stall", "model": model.name, "server": name, "settings": server.settings(),
            "fields": fields | cpu,
            "errors": [], **samples}
