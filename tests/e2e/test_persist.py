"""Cached prefixes over restarts (--kv-persist), and who is served whose."""

import contextlib
import json
import signal
import subprocess
import time

import httpx
import pytest

import kvasir_server
from kvasir_server import BINARY, MODELS

BLOCK = 16  # tokens of a KV block
BYTES_PER_TOKEN = 30 * 3 * 2 * 64 * 2  # SmolLM2, f16
RESTORED = "kvasir_kv_persist_restored_tokens"
SYSTEM = ("You are the keeper of a lighthouse on a small island and answer letters from children. " +
          " ".join(f"Rule {i}: when asked about the number {i * 37 % 101}, speak of the {word}." for i, word in
                   enumerate(("sea", "lamp", "gulls", "storm", "stairs", "fog", "boats", "tide", "rocks", "bread") * 7)))


def ask(server, question="How many steps are there?", headers=None, **fields):
    body = {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}],
            "temperature": 0, "max_tokens": 24, **fields}
    answer = server.post("/v1/chat/completions", body, headers=headers)
    assert answer.status_code == 200, answer.text
    answer = answer.json()
    usage = answer["usage"]
    return (answer["choices"][0]["message"]["content"], usage["prompt_tokens"],
            usage["prompt_tokens_details"]["cached_tokens"])


def serving(folder, *flags):
    return kvasir_server.running("smollm2", "--kv-persist", folder, "--kv-memory", "256M", *flags)


@pytest.mark.parametrize("flags", [(), ("--kv-cache-dtype", "int8")])
def test_a_restarted_server_knows_its_system_prompt(tmp_path, flags):
    with serving(tmp_path / "kv", *flags) as server:
        text, prompt, cached = ask(server)
        assert prompt > 1000 and cached == 0
        assert server.metrics()[RESTORED] == 0
    assert (tmp_path / "kv" / "prefixes.kv").stat().st_mode & 0o777 == 0o600
    with serving(tmp_path / "kv", *flags, "--threads", 1) as server:
        assert "restored from" in server.log()
        assert server.metrics()[RESTORED] >= prompt // BLOCK * BLOCK
        assert ask(server) == (text, prompt, prompt // BLOCK * BLOCK)
        other, _, cached = ask(server, "What do you eat for breakfast?")
        assert cached >= 1000
    with kvasir_server.running("smollm2", *flags) as server:
        assert ask(server, "What do you eat for breakfast?")[0] == other, "restored KV changed a letter"


def test_other_settings_or_a_damaged_file_start_empty_with_a_warning(tmp_path):
    file = tmp_path / "kv" / "prefixes.kv"
    with serving(tmp_path / "kv") as server:
        text, prompt, _ = ask(server)
    whole = file.read_bytes()

    def starts_empty(words, *flags):
        with serving(tmp_path / "kv", *flags) as server:
            assert words in server.log()
            assert server.metrics()[RESTORED] == 0
            assert ask(server)[2] == 0

    starts_empty("is of another KV type", "--kv-cache-dtype", "int8")
    file.write_bytes(whole)
    starts_empty("is of another block size", "--block-size", 32)
    file.write_bytes(whole[:100_000])
    starts_empty("cut short")
    file.write_bytes(b"GGUF" + bytes(100_000))
    starts_empty("no file of KV blocks")

    damaged = bytearray(whole)
    damaged[4096 + 10 * (len(whole) // 40)] ^= 1
    file.write_bytes(damaged)
    with serving(tmp_path / "kv") as server:
        assert "damaged" in server.log()
        answer = ask(server)
        assert answer[0] == text and 0 < answer[2] < prompt // BLOCK * BLOCK


def test_the_prefixes_outlive_a_kill(tmp_path):
    """SIGKILL at any moment leaves the file of the last save: whole, and used by the next server."""
    folder = tmp_path / "kv"
    for pause in (0.0, 0.03, 0.3):
        with serving(folder, "--kv-persist-interval", 0.02) as server:
            text, prompt, _ = ask(server)
            deadline = time.monotonic() + 20
            whole = prompt // BLOCK * BLOCK
            while (found := server.metrics())[RESTORED] < whole and \
                    found["kvasir_kv_persist_saved_bytes"] < whole * BYTES_PER_TOKEN:
                assert time.monotonic() < deadline, "the prompt was not saved"
                time.sleep(0.02)
            for i in range(3):  # new blocks, so that saves go on
                ask(server, f"What is {i} and {pause}?", max_tokens=40)
            time.sleep(pause)
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
        with serving(folder) as server:
            assert ask(server) == (text, prompt, prompt // BLOCK * BLOCK)
        assert not (folder / "prefixes.kv.tmp").exists()


def test_one_server_has_a_directory(tmp_path):
    with serving(tmp_path) as server:
        second = subprocess.run([BINARY, "serve", MODELS["smollm2"], "--port", "0", "--kv-persist", tmp_path],
                                capture_output=True, text=True, timeout=60)
        assert second.returncode == 1
        assert f"another server (process {server.process.pid})" in second.stderr
        assert "another server" in second.stderr


def key(name):
    return {"Authorization": f"Bearer {name}"}


def test_keys_do_not_share_prefixes(tmp_path):
    keys = ("--api-key", "alice-key", "--api-key", "bob-key")
    with serving(tmp_path, *keys) as server:
        text, prompt, cached = ask(server, headers=key("alice-key"))
        assert cached == 0
        assert ask(server, headers=key("bob-key")) == (text, prompt, 0), "another key's prefix was served"
        assert ask(server, headers=key("alice-key")) == (text, prompt, prompt // BLOCK * BLOCK)
        assert ask(server, headers=key("alice-key"), cache_salt="for my own use")[2] == 0
        assert ask(server, headers=key("bob-key"), cache_salt="for my own use")[2] == 0
    stored = (tmp_path / "prefixes.kv").read_bytes()
    assert b"alice-key" not in stored and b"bob-key" not in stored and b"for my own use" not in stored
    with serving(tmp_path, *keys, "--api-key", "eve-key") as server:
        assert ask(server, headers=key("eve-key"))[2] == 0
        assert ask(server, headers=key("bob-key"))[2] == prompt // BLOCK * BLOCK
    with serving(tmp_path, *keys, "--share-cache-between-keys") as server:
        assert ask(server, headers=key("alice-key"))[2] == 0
        assert ask(server, headers=key("bob-key"))[2] == prompt // BLOCK * BLOCK


def completion(server, prompt, **fields):
    answer = server.post("/v1/completions", {"prompt": prompt, "temperature": 0, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def cached_tokens(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_retry_goes_on_where_a_dropped_connection_stopped():
    with kvasir_server.running("smollm2", "--threads", 1) as server:
        prompt = " ".join(str(i) for i in range(1000, 2000))
        body = {"prompt": prompt, "temperature": 0, "max_tokens": 1}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/completions", json=body, timeout=0.6)
        assert server.is_idle()
        computed = int(server.metrics()["kvasir_computed_tokens_total"])
        answer = completion(server, prompt, max_tokens=1)
        assert 0 < computed < answer["usage"]["prompt_tokens"], "it was to be cut off while its prompt was read"
        assert cached_tokens(answer) == computed // BLOCK * BLOCK
        expected = computed + answer["usage"]["prompt_tokens"] - cached_tokens(answer)
        assert server.wait_for_metric("kvasir_computed_tokens_total", expected, 3)

        # In the middle of an answer: the words that were made serve who goes on from them.
        story, pieces = "Once upon a time in a land of", []
        with server.http.stream("POST", "/v1/completions", json={
                "prompt": story, "stream": True, "temperature": 0, "max_tokens": 2000, "ignore_eos": True,
                "return_token_ids": True}) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    pieces += json.loads(line[6:])["choices"][0].get("token_ids") or []
                if len(pieces) >= 100:
                    break
        assert server.is_idle()
        ids = server.post("/tokenize", {"prompt": story}).json()["tokens"] + pieces
        again = completion(server, ids, max_tokens=8)
        assert again["usage"]["prompt_tokens"] == len(ids)
        assert cached_tokens(again) >= (len(ids) - 1) // BLOCK * BLOCK


CHAT_MODELS = ["smollm2", "qwen-0.5b"]


@pytest.mark.parametrize("model", CHAT_MODELS)
def test_the_next_turn_reuses_prompt_and_answer(model):
    if not MODELS[model].is_file():
        pytest.skip(f"{model} is not in models/")
    with kvasir_server.running(model) as server:
        messages = [{"role": "user", "content": "Tell me a story of about a hundred words about a fox and a crow."}]
        for _ in range(3):
            body = {"messages": messages, "temperature": 0, "max_tokens": 150, "return_token_ids": True}
            answer = server.post("/v1/chat/completions", body).json()
            usage = answer["usage"]
            known = usage["prompt_tokens"] + usage["completion_tokens"] - 1  # the last token was not computed
            if len(messages) > 1:
                assert cached_tokens(answer) == min(before, usage["prompt_tokens"] - 1)
            before = known // BLOCK * BLOCK
            messages += [{"role": "assistant", "content": answer["choices"][0]["message"]["content"]},
                         {"role": "user", "content": "Go on, and say what the crow thought of it."}]


def test_a_model_with_sliding_windows_reuses_its_answer():
    if not MODELS["gemma"].is_file():
        pytest.skip("gemma is not in models/")
    with kvasir_server.running("gemma") as server:
        text = "The history of the old harbour town is long. " * 120  # beyond the window of 512
        first = completion(server, text, max_tokens=100, ignore_eos=True, return_token_ids=True)
        prompt = first["usage"]["prompt_tokens"]
        assert prompt > 600
        ids = first["choices"][0]["prompt_token_ids"] + first["choices"][0]["token_ids"]
        second = completion(server, ids + ids[5:20], max_tokens=4)
        assert cached_tokens(second) == (prompt + 99) // BLOCK * BLOCK
        with kvasir_server.running("gemma", "--no-enable-prefix-caching") as plain:
            assert completion(plain, ids + ids[5:20], max_tokens=4)["choices"][0]["text"] == \
                second["choices"][0]["text"]


def test_nothing_is_cut_silently():
    """Up to the last token a prompt is taken whole; one more is refused with both numbers."""
    with kvasir_server.running("smollm2", "--max-model-len", 256) as server:
        ids = server.post("/tokenize", {"prompt": "one two three four five " * 80}).json()["tokens"][:256]
        answer = completion(server, ids[:255], max_tokens=1)
        assert answer["usage"]["prompt_tokens"] == 255 and answer["usage"]["completion_tokens"] == 1
        answer = completion(server, ids[:200], max_tokens=56, ignore_eos=True)
        assert answer["usage"]["completion_tokens"] == 56
        assert answer["choices"][0]["finish_reason"] == "length"

        def refused(*numbers, path="/v1/completions", **body):
            answer = server.post(path, body)
            assert answer.status_code == 400, answer.text
            error = answer.json()["error"]
            assert error["code"] == "context_length_exceeded"
            for number in numbers:
                assert str(number) in error["message"]

        refused(256, prompt=ids, max_tokens=1)
        refused(256, 200, 57, prompt=ids[:200], max_tokens=57)
        refused(256, prompt=[ids[:10], ids], max_tokens=1)
        words = "word " * 300
        refused(256, path="/v1/chat/completions", messages=[{"role": "user", "content": words}])
        count = server.post("/tokenize", {"messages": [{"role": "user", "content": words}]}).json()["count"]
        refused(count, path="/v1/chat/completions", messages=[{"role": "user", "content": words}])
        for field in ({"truncate_prompt_tokens": 10}, ):
            assert server.post("/v1/completions", {"prompt": "hi", "max_tokens": 1, **field}).status_code == 400
    # A pool that holds less than the context says what it holds.
    with kvasir_server.running("smollm2", "--kv-memory", "6M") as server:
        window = server.http.get("/v1/models").json()["data"][0]["max_model_len"]
        assert window < 8192
        answer = server.post("/v1/completions", {"prompt": ids * 2, "max_tokens": 1})
        assert answer.status_code == 400 and str(window) in answer.json()["error"]["message"]
        assert completion(server, ids[:window - 1], max_tokens=1)["usage"]["prompt_tokens"] == min(256, window - 1)
