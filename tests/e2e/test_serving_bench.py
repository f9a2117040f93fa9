"""The arithmetic and the client of bench/serving, against values computed by hand and a server of ten lines."""

import asyncio
import contextlib
import json
import math
import pathlib
import random
import sys
import types
import xml.etree.ElementTree as ElementTree

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench" / "serving"))

import contestants  # noqa: E402
import events  # noqa: E402
import loads  # noqa: E402
import measures  # noqa: E402
import plots  # noqa: E402
import report  # noqa: E402
import servers  # noqa: E402
import soak  # noqa: E402
import stall  # noqa: E402
import waste  # noqa: E402
import wire  # noqa: E402
import workloads  # noqa: E402


def answer(arrived, times, tokens, **fields):
    return events.Answer(arrived=arrived, sent=arrived, times=times, output_tokens=tokens, finished=True, **fields)


@pytest.mark.parametrize("values, percent, expected", [
    ([7], 99, 7), ([4, 1, 3, 2], 50, 2.5), ([1, 2, 3, 4, 5], 50, 3), ([10, 20], 90, 19), (range(101), 99, 99),
])
def test_percentile_interpolates_between_closest_ranks(values, percent, expected):
    assert measures.percentile(values, percent) == pytest.approx(expected)


def test_percentile_of_nothing():
    assert math.isnan(measures.percentile([], 50))


def test_latencies_of_one_answer():
    one = measures.latencies(answer(10.0, [10.5, 10.6, 11.0], 6))
    assert one.ttft == pytest.approx(0.5)
    assert one.tpot == pytest.approx(0.5 / 5), "by tokens, not by events"
    assert one.e2el == pytest.approx(1.0)
    assert one.gaps == pytest.approx((0.1, 0.4))


def test_limits_are_kept_all_or_not():
    one = measures.latencies(answer(0.0, [0.5, 1.0], 6))  # TTFT 500, TPOT 100, E2EL 1,000 ms
    assert measures.keeps(one, {"ttft": 500, "tpot": 100, "e2el": 1000})
    assert not measures.keeps(one, {"ttft": 500, "tpot": 99})
    assert not measures.keeps(one, {"e2el": 999})
    assert measures.keeps(measures.latencies(answer(0.0, [0.5], 1)), {"tpot": 1}), "one token has no TPOT"
    assert measures.parse_limits("ttft:20,tpot:3.5") == {"ttft": 20.0, "tpot": 3.5}
    with pytest.raises(ValueError, match="'itl:3' is no limit"):
        measures.parse_limits("ttft:20,itl:3")


def test_a_summary_by_hand():
    answers = [answer(0.0, [1.0, 2.0], 2, prompt_tokens=10, cached_tokens=4), answer(1.0, [1.5, 4.0], 6, prompt_tokens=30),
               events.Answer(arrived=2.0, sent=2.0, error="lost"), events.Answer(arrived=2.0, sent=2.0, left=True)]
    fields = measures.summarise(answers, {"ttft": 600})
    assert (fields["completed"], fields["failed"]) == (2, 1)
    assert fields["duration"] == 4.0
    assert fields["request_throughput"] == 0.5 and fields["request_goodput"] == 0.25
    assert fields["output_throughput"] == 2.0 and fields["total_token_throughput"] == 12.0
    assert fields["cached_tokens"] == 4
    assert fields["mean_ttft_ms"] == 750 and fields["max_ttft_ms"] == 1000
    assert fields["mean_tpot_ms"] == 750 and fields["max_itl_ms"] == 2500
    assert measures.summarise(answers, useful=[2, 2, 0, 0])["output_throughput"] == 1.0
    assert measures.summarise(answers[2:]) == {"completed": 0, "failed": 1}


def response(*parts, kind="text/event-stream"):
    body = b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts) + b"0\r\n\r\n"
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + body


def event(text, finish=None, index=0):
    choice = {"index": index, "text": text, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


USAGE = (b'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2, '
         b'"prompt_tokens_details": {"cached_tokens": 3}}}\n\n')


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 50, 10000])
def test_a_stream_is_read_the_same_however_it_is_cut(cut):
    data = response(event("Æ"), b": ping\n\n", event("b", "length") + USAGE, b"data: [DONE]\n\n")
    pieces = [(float(i), data[i:i + cut]) for i in range(0, len(data), cut)]
    found = events.answer_of(wire.Raw(0.0, pieces=pieces))
    assert found.finished and not found.error
    assert found.texts == {0: "Æb"} and len(found.times) == 2
    assert (found.prompt_tokens, found.output_tokens, found.cached_tokens) == (5, 2, 3)
    if cut == 1:
        assert found.times[0] == data.index(b"\n\n", data.index(b"data: "))  # the piece that ended its line


@pytest.mark.parametrize("data, error", [
    (response(event("a", "length")), "the connection ended before the answer"),          # no [DONE]
    (response(event("a"), b"data: [DONE]\n\n"), "the connection ended before the answer"),  # no reason
    (response(event("a", "length"), event("b", None, 1), b"data: [DONE]\n\n"), "the connection ended before the answer"),
    (response(b'data: {"error": {"message": "no"}}\n\n'), "error event: {'message': 'no'}"),
    (response(b"data: {\n\n"), "cannot be read"),
    (b"HTTP/1.1 429 Busy\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\n{}", "status 429: {}"),
    (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{", "the connection ended"),
    (b"", "the connection ended before the answer"),
])
def test_what_is_not_whole_is_no_answer(data, error):
    found = events.answer_of(wire.Raw(0.0, pieces=[(1.0, data)]))
    assert not found.finished and found.error.startswith(error)
    assert found.retry_after == ("7" if b"429" in data else "")


def test_an_answer_in_one_piece():
    body = json.dumps({"choices": [{"index": 0, "text": "hi", "finish_reason": "stop"}]}).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    found = events.answer_of(wire.Raw(0.0, pieces=[(1.0, head + body)]))
    assert found.finished and found.texts == {0: "hi"}


@contextlib.asynccontextmanager
async def little_server(seconds_per_token=0.001):
    """Streams max_tokens events, one after the other; `seen` are the bodies and when they ended."""
    seen = []

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        record = types.SimpleNamespace(body=body, began=asyncio.get_running_loop().time(), ended=math.inf)
        seen.append(record)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for i in range(body["max_tokens"]):
                await asyncio.sleep(seconds_per_token)
                writer.write(event("x", "length" if i + 1 == body["max_tokens"] else None))
                await writer.drain()
            writer.write(USAGE + b"data: [DONE]\n\n")
            record.ended = asyncio.get_running_loop().time()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen


def with_little_server(work, **options):
    async def run():
        async with little_server(**options) as (url, seen):
            return await work(url), seen
    return asyncio.run(run())


def test_static_batches_wait_for_their_slowest():
    asks = [workloads.Ask((i,), tokens) for i, tokens in enumerate((2, 30, 3, 4))]
    raws, seen = with_little_server(lambda url: loads.static_batches(url, asks, 2, padded=False))
    order = sorted(seen, key=lambda record: record.began)
    assert [record.body["prompt"] for record in order] == [[0], [1], [2], [3]]
    assert order[2].began >= order[1].ended, "the second batch began before the first one's slowest was done"
    assert [record.body["max_tokens"] for record in order] == [2, 30, 3, 4]
    assert all(events.answer_of(raw).finished for raw in raws)
    assert events.answer_of(raws[1]).times[-1] > events.answer_of(raws[0]).times[-1], "in the order of the asks"
    _, seen = with_little_server(lambda url: loads.static_batches(url, asks, 2, padded=True))
    assert sorted(record.body["max_tokens"] for record in seen) == [4, 4, 30, 30]


def test_open_loop_does_not_wait_and_closed_loop_does():
    asks = [workloads.Ask((i,), 20, at=0.001 * i) for i in range(4)]
    _, seen = with_little_server(lambda url: loads.open_loop(url, asks))
    assert max(record.began for record in seen) < min(record.ended for record in seen)
    _, seen = with_little_server(lambda url: loads.closed_loop(url, asks, 1))
    assert all(b.began >= a.ended for a, b in zip(seen, seen[1:]))


def test_a_client_leaves_after_so_many_events():
    request = workloads.body(workloads.Ask((1,), 1000))
    manners = wire.Manners(leave_after=3)
    raw, seen = with_little_server(lambda url: wire.post(url, "/", request, manners=manners))
    found = events.answer_of(raw)
    assert found.left and not found.error and 3 <= len(found.times) < 1000
    raw, _ = with_little_server(lambda url: wire.post(url, "/", request, timeout=0.05), seconds_per_token=1)
    assert events.answer_of(raw).error == "no end within 0 s"


def test_poisson_times_end_where_the_rate_says():
    times = workloads.poisson_times(random.Random(3), 41, 8.0)
    assert times[0] == 0 and times[-1] == pytest.approx(40 / 8) and times == sorted(times)
    assert workloads.poisson_times(random.Random(3), 1, 8.0) == [0.0]


@pytest.mark.parametrize("lengths, prompt, answer", [("short", (16, 1024), (8, 512)), ("sharegpt", (4, 1024), (4, 1024))])
def test_mixed_loads_are_drawn_from_their_seed_within_their_limits(lengths, prompt, answer):
    def draw(seed):
        return workloads.mixed(workloads.Words(range(100), seed), 64, 8.0, *workloads.LENGTHS[lengths])
    assert draw(1) == draw(1) != draw(2)
    assert all(prompt[0] <= len(ask.prompt) <= prompt[1] and answer[0] <= ask.tokens <= answer[1] for ask in draw(1))


def test_sharegpt_lengths_have_the_published_means():
    asks = workloads.mixed(workloads.Words(range(100), 1), 4000, 8.0, *workloads.LENGTHS["sharegpt"])
    assert sum(len(ask.prompt) for ask in asks) / len(asks) == pytest.approx(161, rel=0.05)
    assert sum(ask.tokens for ask in asks) / len(asks) == pytest.approx(338, rel=0.05)


def test_a_slot_holds_the_longest_request():
    asks = [workloads.Ask((1,) * 100, 8), workloads.Ask((1,) * 1024, 1024)]
    assert contestants.slot_tokens([asks]) == 2560 and contestants.slot_tokens([asks[:1]]) == 1536


def test_shared_loads_have_one_beginning():
    words = workloads.Words(range(100), 1)
    first = workloads.shared_prefix(words, 3, 50, 10, 4)
    then = workloads.again(words, first, 50, 10)
    assert {ask.prompt[:50] for ask in first + then} == {first[0].prompt[:50]}
    assert len({ask.prompt for ask in first + then}) == 6 and all(len(ask.prompt) == 60 for ask in first + then)


def test_the_gap_that_is_open_when_the_prompt_comes_counts():
    times = [float(i) for i in range(15)] + [18.0, 19.0, 25.0]
    before, during = stall.gaps(answer(0.0, times, 18), sent=14.5, answered=18.5)
    assert before == [1.0] * 4, "without the first ten, and without the one that was open"
    assert during == [4.0, 1.0], "up to the one in which the prompt's first token came"


def test_waste_is_weighted_by_the_blocks_in_use():
    assert waste.weighted([(0, 1, 0.5, 1), (1, 3, 0.1, 2)]) == (pytest.approx(0.2), 0.1, 3)


def record(server, durations, field="duration"):
    return [{"load": "shared", "model": "m", "server": server, "settings": "s", "errors": [], "ttfts_ms": [1.0, 30.0],
             "itls_ms": [2.0, 8.0, 9.0], "fields": {field: value}} for value in durations]


def test_a_ratio_is_given_only_where_the_rounds_do_not_overlap():
    assert report.ratio(record("a", [2, 1]), record("b", [10, 8]), "duration") == (6.0, 4.0, 10.0)
    assert report.ratio(record("a", [2, 9]), record("b", [10, 8]), "duration") is None
    assert report.ratio(record("a", [2]), record("b", [5]), "duration") == (2.5, 2.5, 2.5)
    lines = report.markdown("machine", record("a", [2, 1]) + record("b", [10, 8]), [])
    assert "6.00 (4.00 to 10.00)" in lines


def test_metrics_are_read_by_name_and_label():
    found = servers.parse_metrics('# HELP a x\na{m="1",s="u"} 2\na{m="1",s="v"} 3e1\nb 4\n')
    assert found["a"] == 32 and found['a{s="u"}'] == 2 and found['a{m="1"}'] == 32 and found["b"] == 4


def test_a_plot_is_a_picture_with_every_series():
    drawn = plots.draw("a < b", {"one": ([1.0, 50.0], [3.0, 2000.0]), "two": ([4.0], [])})
    root = ElementTree.fromstring(drawn)
    names = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a < b", "one", "two", "Time to first token", "Gaps between tokens"} <= set(names)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) == 3
    assert ElementTree.fromstring(plots.draw("none", {"one": ([], [])})) is not None


def test_a_soak_fails_by_any_of_its_rules():
    fine = dict.fromkeys(("lost", "hung", "wrong", "blocks_used_at_end", "running_at_end", "waiting_at_end",
                          "exit_status"), 0) | {"resident_flat": True}
    assert soak.passed(fine)
    assert not any(soak.passed(fine | {name: 1}) for name in fine if name != "resident_flat")
    assert not soak.passed(fine | {"resident_flat": False})
    assert soak.is_flat(100, 103) and not soak.is_flat(100, 105) and soak.is_flat(1000, 1019)


def test_a_soak_counts_what_came_back():
    case = soak.Case(workloads.Ask((1,), 2), {}, text="ab")
    one = soak.Soak("", [case], 0, 1)
    one.check(case, answer(0, [1.0], 2, texts={0: "ab"}), {})
    one.check(case, answer(0, [1.0], 2, texts={0: "ab"}), {"n": 2})
    one.check(case, answer(0, [1.0], 2, texts={0: "abc"}), {})
    one.check(case, events.Answer(0, 0, error="no end within 120 s"), {})
    one.check(case, events.Answer(0, 0, error="the connection ended before the answer"), {})
    assert (one.tally.answered, one.tally.wrong, one.tally.hung, one.tally.lost) == (1, 2, 1, 1)
