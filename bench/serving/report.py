"""Tables of what was recorded: medians over rounds, with the range where there are several."""

import statistics

COLUMNS = {  # title: (field, factor, digits)
    "total, s": ("duration", 1, 2),
    "output tok/s": ("output_throughput", 1, 0),
    "requests/s": ("request_throughput", 1, 2),
    "goodput/s": ("request_goodput", 1, 2),
    "TTFT mean / p50 / p99 / max, s": (("mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms", "max_ttft_ms"), 1e-3, 2),
    "TPOT mean / p99, ms": (("mean_tpot_ms", "p99_tpot_ms"), 1, 0),
    "ITL mean / p50 / p99 / max, ms": (("mean_itl_ms", "median_itl_ms", "p99_itl_ms", "max_itl_ms"), 1, 0),
    "cached": ("cached_tokens", 1, 0),
    "computed": ("kvasir_computed_tokens_total", 1, 0),
    "failed": ("failed", 1, 0),
    "cores in use: server / client / others": (("server_cpu_share", "client_cpu_share", "other_cpu_share"), 1, 3),
}
STALL = {
    "median gap before, ms": ("median_gap_before_ms", 1, 1),
    "during: median, ms": ("median_gap_during_ms", 1, 1),
    "p99, ms": ("p99_gap_during_ms", 1, 0),
    "longest, ms": ("max_gap_during_ms", 1, 0),
    "longest / median before": ("max_during_over_median_before", 1, 1),
    "longest / median during": ("max_during_over_median_during", 1, 1),
    "prompt": ("prompt_tokens", 1, 0),
    "its first token, s": ("prompt_ttft_ms", 1e-3, 2),
    "cores others use": ("other_cpu_share", 1, 3),
}
WASTE = {
    "KV waste, mean": ("waste_mean", 100, 2),
    "at peak": ("waste_at_peak", 100, 2),
    "blocks at peak": ("blocks_at_peak", 1, 0),
    "most running": ("most_running", 1, 0),
    "total, s": ("duration", 1, 2),
    "output tok/s": ("output_throughput", 1, 0),
    "failed": ("failed", 1, 0),
    "cores others use": ("other_cpu_share", 1, 3),
}
SOAK = {
    "minutes": ("seconds", 1 / 60, 1), "requests": ("requests", 1, 0), "answered": ("answered", 1, 0),
    "left": ("left", 1, 0), "retried": ("retried", 1, 0), "preemptions": ("preemptions", 1, 0),
    "lost": ("lost", 1, 0), "hung": ("hung", 1, 0), "wrong": ("wrong", 1, 0),
    "blocks used at the end": ("blocks_used_at_end", 1, 0),
    "resident at 1/4, MB": ("resident_early_mb", 1, 1), "at the end, MB": ("resident_late_mb", 1, 1),
}
KINDS = {"stall": STALL, "waste": WASTE, "soak": SOAK}
TITLES = {
    "shared": "Clients that arrive together with a common prefix",
    "shared again": "The same prefix again, with new suffixes",
    "mixed": "Mixed lengths, Poisson arrivals",
    "mixed sharegpt": "Lengths like ShareGPT's, Poisson arrivals",
    "stall": "A running stream while a long prompt is read",
    "waste": "KV slots that hold no token, mixed conversations at once",
    "soak": "Soak: cancels, disconnects, slow readers, retries, a pool for 1.5 requests",
}


def median_of(records, field):
    values = [one["fields"][field] for one in records if field in one["fields"]]
    return statistics.median(values) if values else None


def cell(records, spec):
    names, factor, digits = spec
    names = names if isinstance(names, tuple) else (names,)
    values = [median_of(records, name) for name in names]
    return " / ".join("–" if value is None else f"{value * factor:,.{digits}f}" for value in values)


def groups(records):
    """Records by (load, model), then by (server, settings), in the order in which they came."""
    found = {}
    for one in records:
        load = found.setdefault((one["load"], one["model"]), {})
        load.setdefault((one["server"], one["settings"]), []).append(one)
    return found


def ratio(first, other, field):
    """(median, least, most) of other's `field` over the first's, by all pairs of rounds; None where the ranges of the
    two overlap, for then nothing is said."""
    a = [one["fields"][field] for one in first if field in one["fields"]]
    b = [one["fields"][field] for one in other if field in one["fields"]]
    if not a or not b or min(a) <= 0:
        return None
    if max(min(a), min(b)) <= min(max(a), max(b)) and (len(a) > 1 or len(b) > 1):
        return None
    return statistics.median(b) / statistics.median(a), min(b) / max(a), max(b) / min(a)


def ratio_text(first, other, field):
    found = ratio(first, other, field)
    if found is None:
        return "not apart" if any(field in one["fields"] for one in other) else "–"
    middle, least, most = found
    rounds = max(len(first), len(other)) > 1
    return f"{middle:.2f}" + (f" ({least:.2f} to {most:.2f})" if rounds else "")


def table(titles, rows):
    yield "| " + " | ".join(titles) + " |"
    yield "|---" * len(titles) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def load_section(load, model, servers):
    columns = KINDS.get(load, COLUMNS)
    field = {"stall": "max_gap_during_ms"}.get(load, "duration")
    compared = ["mean TTFT / the first's"] if columns is COLUMNS else []
    versus = {"stall": ["longest / the first's"], "waste": [], "soak": []}.get(load, ["total / the first's", *compared])
    first = next(iter(servers.values()))
    rows = []
    for (name, _), records in servers.items():
        ratios = [ratio_text(first, records, field)] if versus else []
        ratios += [ratio_text(first, records, "mean_ttft_ms")] if len(versus) > 1 else []
        rows.append([name, str(len(records)), *(cell(records, spec) for spec in columns.values()), *ratios])
    yield f"## {TITLES[load]}: {model}"
    yield ""
    yield from table(["", "rounds", *columns, *versus], rows)
    yield ""
    for (name, settings), records in servers.items():
        yield f"- {name}: {settings}"
        for error in dict.fromkeys(error for one in records for error in one["errors"]):
            yield f"  - failed: {error}"
    yield ""


def markdown(machine, records, notes):
    lines = ["# Serving under load", "", machine, "", *notes, ""]
    for (load, model), servers in groups(records).items():
        lines += load_section(load, model, servers)
    return "\n".join(lines)
