"""A crowd of clients that ask one server at the same moment, and what they see of its speed."""

import asyncio
import dataclasses
import json
import statistics
import time

import httpx

TIMEOUT_S = 600


@dataclasses.dataclass
class Load:
    """What the crowd saw. Times in seconds, over the clients that were answered."""

    output_tokens_per_second: float
    first_token_median: float
    gap_p99: float
    failed: int


async def one_client(client, prompt, tokens):
    """Streams one completion; returns the time of the request and of each piece of text."""
    body = {
        "model": "any", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True,
        "ignore_eos": True, "stream_options": {"include_usage": True},
    }
    started, times, count = time.monotonic(), [], 0
    async with client.stream("POST", "/v1/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            event = json.loads(line[len("data: "):])
            if event.get("choices") and event["choices"][0].get("text"):
                times.append(time.monotonic())
            if event.get("usage"):
                count = event["usage"]["completion_tokens"]
    if not times:
        raise httpx.RemoteProtocolError("the stream ended without text")
    return started, times, count


async def crowd(url, prompts, tokens):
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, limits=limits) as client:
        started = time.monotonic()
        jobs = (one_client(client, prompt, tokens) for prompt in prompts)
        results = await asyncio.gather(*jobs, return_exceptions=True)
        seconds = time.monotonic() - started
    answered = [result for result in results if not isinstance(result, BaseException)]
    if not answered:
        raise RuntimeError(f"no client was answered: {results[0]!r}")
    gaps = sorted(b - a for _, times, _ in answered for a, b in zip(times, times[1:]))
    return Load(
        output_tokens_per_second=sum(count for *_, count in answered) / seconds,
        first_token_median=statistics.median(times[0] - start for start, times, _ in answered),
        gap_p99=gaps[len(gaps) * 99 // 100] if gaps else 0.0,
        failed=len(results) - len(answered),
    )


def measure(url, clients, tokens, text, round_number):
    """`clients` prompts of about 128 tokens, no two with a common start, all at once."""
    words = text.split()
    prompts = []
    for i in range(clients):
        first = (round_number * 977 + i * 53) % (len(words) - 100)
        prompts.append(f"{round_number}.{i} " + " ".join(words[first:first + 95]))
    return asyncio.run(crowd(url, prompts, tokens))
