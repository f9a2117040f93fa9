"""What a load came to, under the names of `vllm bench serve`, so that what reads its files reads these.

    TTFT    from the request's arrival to its first event with choices
    TPOT    (last event - first event) / (output tokens - 1), per request; none for an answer of one token
    ITL     between two consecutive events of a request, of all requests together
    E2EL    from the request's arrival to its last event
    goodput requests per second that keep every given limit (DistServe, arXiv 2401.09670); TPOT of an answer of one
            token counts as 0

An arrival is when the load says so; where a client holds requests back (static batching), their waiting counts.
"""

import dataclasses
import math
import statistics

PERCENTILES = (50, 90, 99)


def percentile(values, percent):
    """Linear interpolation between closest ranks, as numpy.percentile does; `values` need not be sorted."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    rank = (len(ordered) - 1) * percent / 100
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


@dataclasses.dataclass(frozen=True)
class Latencies:
    """Of one answer, in seconds."""

    ttft: float
    tpot: float  # nan where there is one token
    e2el: float
    gaps: tuple


def latencies(answer):
    first, last = answer.times[0], answer.times[-1]
    tpot = (last - first) / (answer.output_tokens - 1) if answer.output_tokens > 1 else math.nan
    gaps = tuple(b - a for a, b in zip(answer.times, answer.times[1:]))
    return Latencies(first - answer.arrived, tpot, last - answer.arrived, gaps)


def keeps(latency, limits):
    """Whether every limit (milliseconds by 'ttft', 'tpot' or 'e2el') is kept."""
    for name, most in limits.items():
        value = getattr(latency, name)
        if not math.isnan(value) and value * 1000 > most:
            return False
    return True


def parse_limits(text):
    """'ttft:2000,tpot:200' to milliseconds by name."""
    limits = {}
    for part in filter(None, text.split(",")):
        name, colon, number = part.partition(":")
        if not colon or name not in ("ttft", "tpot", "e2el"):
            raise ValueError(f"'{part}' is no limit: write ttft:MS, tpot:MS or e2el:MS")
        limits[name] = float(number)
    return limits


def describe(name, seconds):
    """Statistics in milliseconds by field name."""
    values = [value * 1000 for value in seconds if not math.isnan(value)]
    if not values:
        return {}
    fields = {f"mean_{name}_ms": statistics.fmean(values), f"median_{name}_ms": percentile(values, 50),
              f"std_{name}_ms": statistics.pstdev(values), f"max_{name}_ms": max(values)}
    return fields | {f"p{p}_{name}_ms": percentile(values, p) for p in PERCENTILES}


def summarise(answers, limits=None, useful=None):
    """The fields of one load. `useful`: tokens of each answer that somebody asked for, where a batch wrote more."""
    good = [answer for answer in answers if answer.finished and not answer.error and answer.times]
    fields = {"completed": len(good), "failed": sum(not a.left for a in answers) - len(good)}
    if not good:
        return fields
    useful = useful or [answer.output_tokens for answer in answers]
    output = sum(tokens for answer, tokens in zip(answers, useful) if answer.finished and not answer.error)
    prompt = sum(answer.prompt_tokens for answer in good)
    duration = max(a.times[-1] for a in good) - min(a.arrived for a in answers)
    each = [latencies(answer) for answer in good]
    fields |= {
        "duration": duration, "total_input_tokens": prompt, "total_output_tokens": output,
        "cached_tokens": sum(answer.cached_tokens for answer in good),
        "request_throughput": len(good) / duration, "output_throughput": output / duration,
        "total_token_throughput": (output + prompt) / duration,
        "request_goodput": sum(keeps(one, limits or {}) for one in each) / duration,
    }
    for name in ("ttft", "tpot", "e2el"):
        fields |= describe(name, [getattr(one, name) for one in each])
    return fields | describe("itl", [gap for one in each for gap in one.gaps])


def samples(answers):
    """TTFT of each request and every gap, in milliseconds, for plots."""
    each = [latencies(answer) for answer in answers if answer.finished and answer.times]
    return {"ttfts_ms": [round(one.ttft * 1000, 2) for one in each],
            "itls_ms": [round(gap * 1000, 2) for one in each for gap in one.gaps]}
