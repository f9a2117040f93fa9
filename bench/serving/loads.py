"""How requests meet a server: each when it is due (open loop), by clients that wait for their answer (closed loop), or
in batches that wait for their slowest (what static batching does). All give raw exchanges in the order of `asks`.
"""

import asyncio
import time

import wire
from workloads import body

PATH = "/v1/completions"


async def open_loop(url, asks, **fields):
    """Sends each at its time, whatever the server does."""
    start = time.perf_counter()

    async def one(ask):
        await asyncio.sleep(start + ask.at - time.perf_counter())
        return await wire.post(url, PATH, body(ask, **fields), arrived=start + ask.at)

    return await asyncio.gather(*(one(ask) for ask in asks))


async def closed_loop(url, asks, clients, **fields):
    """`clients` clients take the asks in turn, each the next when its last is answered."""
    results, next_one = [None] * len(asks), iter(range(len(asks)))

    async def client():
        for i in next_one:
            results[i] = await wire.post(url, PATH, body(asks[i], **fields))

    await asyncio.gather(*(client() for _ in range(clients)))
    return results


async def static_batches(url, asks, size, padded, **fields):
    """Static batching, made by the client: of those that have arrived up to `size` start together, and the next batch
    starts when all of them are done. With `padded` all go on until the longest is done, as servers without
    iteration-level scheduling compute them (Orca, OSDI 2022); without, a finished one leaves the batch."""
    start = time.perf_counter()
    order = sorted(range(len(asks)), key=lambda i: asks[i].at)
    results = [None] * len(asks)
    while order:
        await asyncio.sleep(start + asks[order[0]].at - time.perf_counter())
        now = time.perf_counter() - start
        batch = [i for i in order[:size] if asks[i].at <= now]
        order = order[len(batch):]
        longest = max(asks[i].tokens for i in batch)
        more = {"max_tokens": longest} if padded else {}
        done = await asyncio.gather(*(
            wire.post(url, PATH, body(asks[i], **fields) | more, arrived=start + asks[i].at) for i in batch))
        for i, raw in zip(batch, done):
            results[i] = raw
    return results


async def stream_beside_prompt(url, stream, prompt, events_before, **fields):
    """A stream runs; after `events_before` of its events a long prompt comes; when that is answered the stream's client
    leaves. (stream, prompt) exchanges."""
    running = Watched()
    streaming = asyncio.create_task(running.post(url, body(stream, **fields)))
    await running.reached(events_before)
    reading = await wire.post(url, PATH, body(prompt, **fields))
    running.raw.leave()
    return await streaming, reading


class Watched:
    """A stream whose events can be waited for while it runs."""

    def __init__(self):
        self.raw = wire.Raw(time.perf_counter())

    async def post(self, url, request):
        return await wire.post(url, PATH, request, raw=self.raw)

    async def reached(self, events, timeout=120.0):
        deadline = time.perf_counter() + timeout
        while sum(data.count(wire.EVENT) for _, data in self.raw.pieces) < events:
            if self.raw.ended or time.perf_counter() > deadline:
                raise RuntimeError(f"the stream ended or stood still before its event {events}")
            await asyncio.sleep(0.005)
