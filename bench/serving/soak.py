"""Minutes of rough use, in a pool that holds one and a half requests: answers streamed and whole, clients that leave
before, in the middle or by half, that read slowly, that come back after a dropped connection; priorities, users and
cache salts. Every answer must be the one that the server gave to the same request when it was alone.
"""

import asyncio
import dataclasses
import random
import statistics
import time

import events
import loads
import servers
import wire
import workloads

CONTEXT = 512            # tokens of the largest request; the pool holds one and a half of them
PROBE_MIB = 64           # a pool of this size tells how many bytes a block takes
ANSWER_LIMIT_S = 120.0   # an answer that takes longer counts as hung
MOST_RETRIES = 50
IDLE_LIMIT_S = 15.0
FLAT_SHARE, FLAT_MB = 0.02, 4.0  # resident memory may grow by so much between the second quarter and the last
KINDS = {"stream": 40, "whole": 15, "two": 8, "leave at once": 6, "leave": 12, "half close": 4, "slow": 7, "retry": 8}


@dataclasses.dataclass
class Case:
    ask: workloads.Ask
    fields: dict
    text: str = ""  # the answer to it alone


@dataclasses.dataclass
class Tally:
    requests: int = 0
    answered: int = 0
    left: int = 0
    retried: int = 0
    refused: int = 0       # 429 or 503, and then asked again
    lost: int = 0
    hung: int = 0
    wrong: int = 0
    errors: list = dataclasses.field(default_factory=list)

    def fail(self, kind, text):
        setattr(self, kind, getattr(self, kind) + 1)
        self.errors.append(f"{kind}: {text}")


def make_cases(words, count=24):
    """A third shares a beginning of 256 tokens; half draw from their own seed, the others are greedy."""
    choose, common, cases = words.choose, words.draw(256), []
    for i in range(count):
        tokens = choose.randint(4, 100)
        own = words.draw(choose.randint(8, 120) if i % 3 == 0 else choose.randint(8, CONTEXT - tokens - 8))
        fields = {"temperature": 1.0, "seed": 1000 + i} if i % 2 else {}
        cases.append(Case(workloads.Ask((common + own) if i % 3 == 0 else own, tokens), fields))
    return cases


def one_text(answer):
    return answer.texts.get(0, "")


class Soak:
    def __init__(self, url, cases, seconds, seed):
        self.url, self.cases, self.seconds = url, cases, seconds
        self.choose, self.tally = random.Random(seed), Tally()

    async def ask(self, case, manners=wire.Manners(), **fields):
        self.tally.requests += 1
        body = workloads.body(case.ask, **case.fields) | fields
        if not body["stream"]:
            del body["stream_options"]
        return events.answer_of(await wire.post(self.url, loads.PATH, body, timeout=ANSWER_LIMIT_S, manners=manners))

    async def learn(self):
        """The answers to each alone."""
        for case in self.cases:
            answer = await self.ask(case)
            if not answer.finished:
                raise RuntimeError(f"a request failed with nobody else there: {answer.error}")
            case.text = one_text(answer)

    async def ask_until_answered(self, case, manners=wire.Manners(), **fields):
        """As a good client does it: told to come back, it comes back."""
        for _ in range(MOST_RETRIES):
            answer = await self.ask(case, manners, **fields)
            if answer.status not in (429, 503):
                break
            self.tally.refused += 1
            await asyncio.sleep(min(float(answer.retry_after or 1), 5.0))
        self.check(case, answer, fields)

    def check(self, case, answer, fields):
        if answer.error.startswith("no end within"):
            self.tally.fail("hung", f"{answer.error}, {len(answer.times)} events, {fields}")
        elif not answer.finished:
            self.tally.fail("lost", f"{answer.error}, status {answer.status}, {len(answer.times)} events, {fields}")
        elif one_text(answer) != case.text or len(answer.texts) != fields.get("n", 1):
            self.tally.fail("wrong", f"{one_text(answer)!r} instead of {case.text!r}, {fields}")
        else:
            self.tally.answered += 1

    async def leave(self, case, manners, **fields):
        """It may also have been answered before it could leave."""
        answer = await self.ask(case, manners, **fields)
        if answer.left:
            self.tally.left += 1
        elif answer.status not in (429, 503):
            self.check(case, answer, fields)

    def extras(self):
        fields = {"user": f"user-{self.choose.randrange(4)}", "priority": self.choose.randrange(3)}
        if self.choose.random() < 0.2:
            fields["cache_salt"] = f"salt-{self.choose.randrange(2)}"
        return fields

    async def act(self):
        case, fields = self.choose.choice(self.cases), self.extras()
        kind = self.choose.choices(list(KINDS), weights=list(KINDS.values()))[0]
        some = self.choose.randint(1, max(1, case.ask.tokens))
        if kind == "stream":
            await self.ask_until_answered(case, **fields)
        elif kind == "whole":
            await self.ask_until_answered(case, stream=False, **fields)
        elif kind == "two":
            await self.ask_until_answered(case, n=2, **fields)
        elif kind == "slow":
            await self.ask_until_answered(case, wire.Manners(sips=(2048, 0.05)), logprobs=5, **fields)
        elif kind == "half close":
            await self.leave(case, wire.Manners(leave_after=some, half_close=True), **fields)
        else:
            await self.leave(case, wire.Manners(leave_after=0 if kind == "leave at once" else some), **fields)
            if kind == "retry":
                self.tally.retried += 1
                await self.ask_until_answered(case, **fields)

    async def run(self, clients, running):
        await self.learn()
        end, resident = time.monotonic() + self.seconds, []

        async def client():
            while time.monotonic() < end:
                await self.act()

        async def watch():
            while time.monotonic() < end:
                resident.append(running.resident_bytes() / 1e6)
                await asyncio.sleep(1)

        await asyncio.gather(watch(), *(client() for _ in range(clients)))
        for case in self.cases:  # and alone again
            await self.ask_until_answered(case)
        return resident


def flags_for_pool(server, model, log):
    """--kv-memory for one and a half requests of CONTEXT tokens."""
    with server.start(model, 0, 0, log, ("--kv-memory", f"{PROBE_MIB}MiB", "-c", CONTEXT)) as running:
        blocks = running.metrics()["kvasir_kv_blocks"]
        config = running.metrics()
    size = next(int(name.split('"')[1]) for name in config if name.startswith('vllm:cache_config_info{block_size='))
    block_bytes = PROBE_MIB * (1 << 20) / blocks
    return ("--kv-memory", str(int(1.5 * CONTEXT / size * block_bytes) + 1024), "-c", CONTEXT)


def idle_state(running):
    """Metrics once nothing runs, or when IDLE_LIMIT_S is over."""
    deadline = time.monotonic() + IDLE_LIMIT_S
    while True:
        metrics = running.metrics()
        busy = ("vllm:num_requests_running", "vllm:num_requests_waiting", 'kvasir_kv_blocks{state="used"}')
        if all(metrics[name] == 0 for name in busy) or time.monotonic() > deadline:
            return metrics
        time.sleep(0.1)


def is_flat(early, late):
    return late - early <= max(FLAT_SHARE * early, FLAT_MB)


def run(server, options, model, words, log):
    flags = flags_for_pool(server, model, log)
    with server.start(model, 0, 0, log, flags) as running:
        soak = Soak(running.url, make_cases(words), options.seconds, words.choose.random())
        resident = asyncio.run(soak.run(options.clients, running))
        metrics = idle_state(running)
        servers.end(running.process)
        status = running.process.returncode
    quarter = max(1, len(resident) // 4)
    early, late = statistics.median(resident[quarter:2 * quarter] or resident), statistics.median(resident[-quarter:])
    tally = dataclasses.asdict(soak.tally)
    errors = tally.pop("errors")
    fields = tally | {
        "seconds": options.seconds, "clients": options.clients, "preemptions": metrics["vllm:num_preemptions_total"],
        "slow_readers_dropped": metrics["kvasir_http_slow_readers_total"],
        "blocks": metrics["kvasir_kv_blocks"], "blocks_used_at_end": metrics['kvasir_kv_blocks{state="used"}'],
        "running_at_end": metrics["vllm:num_requests_running"], "waiting_at_end": metrics["vllm:num_requests_waiting"],
        "resident_early_mb": early, "resident_late_mb": late, "resident_max_mb": max(resident),
        "resident_flat": is_flat(early, late), "exit_status": status, "resident_mb": [round(r, 1) for r in resident]}
    fields["passed"] = passed(fields)
    return {"load": "soak", "model": model.name, "server": server.name,
            "settings": " ".join(str(flag) for flag in (server.settings(), *flags)), "fields": fields,
            "errors": errors[:20], "ttfts_ms": [], "itls_ms": []}


def passed(fields):
    clean = ("lost", "hung", "wrong", "blocks_used_at_end", "running_at_end", "waiting_at_end", "exit_status")
    return all(fields[name] == 0 for name in clean) and fields["resident_flat"]
