"""Requests of a load: prompts as token ids, so that their lengths are exact on every server, and all from a seed."""

import dataclasses
import math
import random


@dataclasses.dataclass(frozen=True)
class Ask:
    prompt: tuple      # token ids
    tokens: int        # of the answer
    at: float = 0.0    # seconds after the load's start


def body(ask, **fields):
    """Greedy, of exactly `tokens` tokens, streamed with its usage: what every server here understands."""
    return {"model": "any", "prompt": list(ask.prompt), "max_tokens": ask.tokens, "temperature": 0, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True}} | fields


def poisson_times(choose, count, rate):
    """`count` arrivals at `rate` a second, scaled to end at exactly (count - 1) / rate, as `vllm bench serve` does."""
    times, now = [0.0], 0.0
    for _ in range(count - 1):
        now += choose.expovariate(1.0)
        times.append(now)
    return [time * (count - 1) / (rate * now) for time in times] if now else times


def lognormal(choose, median, sigma, least, most):
    return min(most, max(least, round(math.exp(choose.gauss(math.log(median), sigma)))))


class Words:
    """Prompts drawn from the ids of ordinary text; no two begin alike unless they are meant to."""

    def __init__(self, ids, seed):
        self.ids = sorted(set(ids))
        self.choose = random.Random(seed)

    def draw(self, count):
        return tuple(self.choose.choices(self.ids, k=count))


def shared_prefix(words, clients=16, shared=1024, own=64, tokens=32):
    """All at once: `shared` tokens in common and `own` each. Called again it gives new suffixes of the same prefix
    only through `again`."""
    prefix = words.draw(shared)
    return [Ask(prefix + words.draw(own), tokens) for _ in range(clients)]


def again(words, asks, shared=1024, own=64):
    """The same prefix with new suffixes."""
    return [Ask(ask.prompt[:shared] + words.draw(own), ask.tokens) for ask in asks]


# Lognormal lengths of prompts and of answers: (median, sigma, least, most).
LENGTHS = {
    "short": ((128, 0.8, 16, 1024), (64, 0.9, 8, 512)),
    # Means of 161 and 338 tokens, those of ShareGPT (Kwon et al., arXiv 2309.06180, 6.1), within the limits that `vllm
    # bench serve` sets for it. The paper gives no spread: the sigmas are ours.
    "sharegpt": ((101, 1.0, 4, 1024), (248, 0.9, 4, 1024)),
}


def mixed(words, count, rate, prompt, answer):
    """Poisson arrivals at `rate` a second; lengths as in LENGTHS."""
    times = poisson_times(words.choose, count, rate)
    lengths = [(lognormal(words.choose, *prompt), lognormal(words.choose, *answer)) for _ in range(count)]
    return [Ask(words.draw(first), then, at) for at, (first, then) in zip(times, lengths)]
