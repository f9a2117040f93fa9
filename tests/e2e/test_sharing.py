"""Who goes first: priorities, users, full queues; and streams that are kept alive while they wait."""

import shutil
import subprocess
import threading

import httpx
import pytest

import kvasir_server

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
LONG_PROMPT = " ".join(str(i) for i in range(700))


def body(prompt="Once upon a time", tokens=300, **fields):
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **fields}


class Crowd:
    """Requests in the background, each on a connection of its own; `done` holds their names as they end."""

    def __init__(self, server):
        self.server, self.done, self.answers, self.threads = server, [], {}, []

    def ask(self, name, headers=None, **fields):
        def run():
            answer = httpx.post(f"{self.server.url}/v1/completions", json=body(**fields), headers=headers, timeout=120)
            self.done.append(name)
            self.answers[name] = answer

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def wait(self):
        for thread in self.threads:
            thread.join()


@pytest.fixture(scope="module")
def single():
    """A server that runs one sequence at a time."""
    with kvasir_server.running("smollm2", "--max-num-seqs", 1) as server:
        yield server


@pytest.fixture(scope="module")
def impatient():
    """A server with a keep-alive every 50 ms, for one sequence at a time."""
    with kvasir_server.running("smollm2", "--max-num-seqs", 1, "--stream-keep-alive", 0.05) as server:
        yield server


def test_lower_priority_numbers_go_first_and_take_the_place_of_higher_ones(single):
    crowd = Crowd(single)
    crowd.ask("running", tokens=400)
    assert single.wait_for_metric(RUNNING, 1, 10)
    for name, priority in (("last", 5), ("third", 1), ("second", 0), ("first", -1)):
        crowd.ask(name, tokens=8, priority=priority)
        assert single.wait_for_metric(WAITING, len(crowd.threads) - 1, 10)
    crowd.wait()
    assert crowd.done == ["running", "first", "second", "third", "last"], "the oldest keeps its slot"
    assert all(answer.status_code == 200 for answer in crowd.answers.values())


def test_priority_must_be_an_integer(single):
    for value in (1.5, "high", 2 ** 31):
        answer = single.post("/v1/completions", body(tokens=1, priority=value))
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "priority"


def test_one_users_flood_does_not_delay_anothers_first_request():
    flags = ("--max-num-seqs", 4, "--max-queued-requests", 64)
    with kvasir_server.running("smollm2", *flags) as server:
        expected = server.complete("The guest says:", max_tokens=24, ignore_eos=True)
        crowd = Crowd(server)
        for i in range(40):
            crowd.ask(f"flood {i}", prompt=f"Story {i}:", tokens=150, user="flood")
        assert server.wait_for_metrics(lambda metrics: metrics[RUNNING] == 4 and metrics[WAITING] > 20, 20)
        answer = server.post("/v1/completions", body("The guest says:", 24, user="guest")).json()
        ended = len(crowd.done)
        crowd.wait()
        assert answer["choices"][0]["text"] == expected
        assert ended < 12, f"{ended} of 40 earlier requests had ended before the guest's"
        assert {a.status_code for a in crowd.answers.values()} == {200}
        texts = {name: a.json()["choices"][0]["text"] for name, a in crowd.answers.items()}
        again = server.complete("Story 3:", max_tokens=150, ignore_eos=True)
        assert texts["flood 3"] == again, "who made place says the same"
        assert server.is_idle()


def test_a_users_flood_leaves_places_in_the_queue_for_others():
    flags = ("--max-num-seqs", 1, "--max-queued-requests", 8)
    with kvasir_server.running("smollm2", *flags) as server:
        crowd = Crowd(server)
        crowd.ask("running", tokens=1200, user="flood")
        assert server.wait_for_metric(RUNNING, 1, 10)
        for i in range(12):
            crowd.ask(f"flood {i}", tokens=100, user="flood")
        assert server.wait_for_metric("kvasir_requests_refused_total", 5, 10), "seven of eight places"
        crowd.ask("guest", tokens=4, user="guest", priority=-1)
        crowd.wait()
        codes = [answer.status_code for name, answer in crowd.answers.items() if name != "guest"]
        assert codes.count(200) == 8 and codes.count(429) == 5
        assert crowd.answers["guest"].status_code == 200
        refused = next(a for a in crowd.answers.values() if a.status_code == 429)
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert "of this user" in refused.json()["error"]["message"]
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert server.is_idle()


def test_retry_after_grows_with_what_waits():
    flags = ("--max-num-seqs", 1, "--max-queued-requests", 4, "--max-queued-per-user", 3)
    with kvasir_server.running("smollm2", *flags) as server:
        crowd = Crowd(server)
        crowd.ask("running", prompt=LONG_PROMPT, tokens=800)
        assert server.wait_for_metric(RUNNING, 1, 20)
        for i in range(3):
            crowd.ask(f"waiting {i}", prompt=f"{i} {LONG_PROMPT}", tokens=100)
        assert server.wait_for_metric(WAITING, 3, 10)
        estimate = server.metrics()["kvasir_queue_seconds"]
        refused = server.post("/v1/completions", body(tokens=1))
        assert refused.status_code == 429
        assert "the queue holds 3 of one user" in refused.json()["error"]["message"]
        assert estimate > 1
        assert abs(int(refused.headers["retry-after"]) - min(60, estimate)) <= max(2, estimate / 2)
        crowd.wait()


def test_the_official_client_comes_back_when_told():
    """The queue is full at first; the client waits as Retry-After says and is served."""
    flags = ("--max-num-seqs", 1, "--max-queued-requests", 1)
    with kvasir_server.running("smollm2", *flags) as server:
        crowd = Crowd(server)
        crowd.ask("running", tokens=100)
        assert server.wait_for_metric(RUNNING, 1, 10)
        crowd.ask("waiting", tokens=4)
        assert server.wait_for_metric(WAITING, 1, 10)
        answer = server.openai(max_retries=5).completions.create(model="any", prompt="Hello", max_tokens=3)
        crowd.wait()
        assert answer.usage.completion_tokens >= 1
        assert server.metrics()["kvasir_requests_refused_total"] >= 1


def test_keys_are_users_with_weights_and_terms(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("app weight=4\nbatch best-priority=10\n")
    with kvasir_server.running("smollm2", "--api-key-file", keys) as server:
        def ask(key, **fields):
            return server.post("/v1/completions", body(tokens=2, **fields), headers={"Authorization": f"Bearer {key}"})

        assert ask("app", priority=-5).status_code == 200
        assert ask("batch").status_code == 200
        assert ask("batch", priority=10).status_code == 200
        refused = ask("batch", priority=9)
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "priority"
        assert ask("nobody").status_code == 401


def test_a_bad_line_of_a_key_file_is_named(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("app\nsecret wait=4\n")
    command = [kvasir_server.BINARY, "serve", kvasir_server.MODELS["smollm2"], "--api-key-file", keys]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "line 2" in done.stderr and "weight=W" in done.stderr
    assert "secret" not in done.stderr


def keep_alives_before_data(response):
    """Keep-alives (two empty lines) before the first event, and the number of events."""
    empty, events = 0, 0
    for line in response.iter_lines():
        assert line == "" or line.startswith("data: "), line
        events += line.startswith("data: {")
        empty += line == "" and events == 0
    assert empty % 2 == 0
    return empty // 2, events


def test_a_stream_is_kept_alive_while_its_prompt_is_read(impatient):
    request = body("a " + LONG_PROMPT, 2, stream=True)
    with impatient.http.stream("POST", "/v1/completions", json=request) as response:
        keep_alives, events = keep_alives_before_data(response)
    assert keep_alives >= 3
    assert events == 2


def test_a_stream_is_kept_alive_while_it_waits(impatient):
    crowd = Crowd(impatient)
    crowd.ask("running", tokens=400)
    assert impatient.wait_for_metric(RUNNING, 1, 20)
    with impatient.http.stream("POST", "/v1/completions", json=body("Hi", 2, stream=True)) as response:
        keep_alives, events = keep_alives_before_data(response)
    crowd.wait()
    assert keep_alives >= 2
    assert events == 2


def test_answers_that_are_not_streamed_get_no_keep_alive(impatient):
    answer = impatient.post("/v1/completions", body("b " + LONG_PROMPT, 2))
    assert answer.text.startswith("{")
    assert answer.json()["usage"]["completion_tokens"] == 2


def test_the_python_client_reads_over_keep_alives(impatient):
    stream = impatient.openai().completions.create(
        model="any", prompt="c " + LONG_PROMPT, max_tokens=3, temperature=0, stream=True,
        stream_options={"include_usage": True}, extra_body={"ignore_eos": True, "priority": 1})
    chunks = list(stream)
    assert chunks[-1].usage.completion_tokens == 3
    assert all(chunk.object == "text_completion" for chunk in chunks)
    chat = impatient.openai().chat.completions.create(
        model="any", messages=[{"role": "user", "content": LONG_PROMPT}], max_tokens=3, temperature=0, stream=True,
        user="anna")
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chat)


def test_the_node_client_reads_over_keep_alives(impatient):
    folder = kvasir_server.ROOT / "tests" / "e2e" / "node"
    assert shutil.which("node"), "tools/setup.sh --node installs Node.js"
    done = subprocess.run(["node", "client.mjs", f"{impatient.url}/v1", "patience"], cwd=folder, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == "patience ok"
