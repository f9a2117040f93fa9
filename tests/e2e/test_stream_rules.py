"""Server-sent events byte by byte, as the strictest of the known clients read them."""

import json

import pytest

CHAT = {"messages": [{"role": "user", "content": "Count from one to ten."}], "temperature": 0, "max_tokens": 24}
COMPLETION = {"prompt": "One, two, three,", "temperature": 0, "max_tokens": 24}


def raw_stream(server, path, body):
    """Headers and whole body of a streamed answer."""
    with server.http.stream("POST", path, json=body | {"stream": True}) as response:
        assert response.status_code == 200
        return response.headers, response.read().decode("utf-8")


def events(raw):
    """The JSON of each event; checks the framing on the way."""
    assert "\r" not in raw and raw.endswith("\n\n")
    lines = raw.removesuffix("\n\n").split("\n\n")
    assert all("\n" not in line for line in lines)
    lines = [line for line in lines if not line.startswith(":")]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


@pytest.mark.parametrize("path, body", [("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)])
def test_framing_and_envelope(server, path, body):
    headers, raw = raw_stream(server, path, body)
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["cache-control"] == "no-cache"
    chunks = events(raw)
    for key in ("id", "created", "model", "object"):
        assert len({chunk[key] for chunk in chunks}) == 1
    kind = "chat.completion.chunk" if "chat" in path else "text_completion"
    assert chunks[0]["object"] == kind
    assert all(len(chunk["choices"]) == 1 for chunk in chunks), "no chunk without choices unless usage was asked for"
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons[-1] in ("stop", "length") and not any(reasons[:-1])


def test_role_comes_once_with_the_first_text(server):
    _, raw = raw_stream(server, "/v1/chat/completions", CHAT)
    deltas = [chunk["choices"][0]["delta"] for chunk in events(raw)]
    assert deltas[0]["role"] == "assistant"
    assert not any("role" in delta for delta in deltas[1:])


@pytest.mark.parametrize("path, body", [("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)])
def test_usage_only_when_asked_and_last(server, path, body):
    _, raw = raw_stream(server, path, body)
    assert all(chunk.get("usage") is None for chunk in events(raw))
    _, raw = raw_stream(server, path, body | {"stream_options": {"include_usage": True}})
    chunks = events(raw)
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 24
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    whole = server.post(path, body).json()["usage"]
    for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert chunks[-1]["usage"][key] == whole[key]


@pytest.mark.parametrize("path, text", [("/v1/chat/completions", "messages"), ("/v1/completions", "prompt")])
def test_cached_tokens_are_told_alike_in_a_stream_and_without(server, path, text):
    words = f"{path}: " + " ".join(str(i) for i in range(60))
    body = {text: words if text == "prompt" else [{"role": "user", "content": words}], "max_tokens": 2,
            "temperature": 0, "cache_salt": f"told alike {path}"}

    def streamed():
        _, raw = raw_stream(server, path, body | {"stream_options": {"include_usage": True}})
        return events(raw)[-1]["usage"]

    first, second, whole = streamed(), streamed(), server.post(path, body).json()["usage"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens_details"]["cached_tokens"] == first["prompt_tokens"] // 16 * 16
    assert second == whole
    assert first["prompt_tokens"] == whole["prompt_tokens"], "a hit changes no count"


def test_split_characters_never_leak(server):
    """Any answer of any tokens: bytes that are no UTF-8 by themselves are held back until whole."""
    emoji = "\U0001f469\u200d\U0001f469\u200d\U0001f467 \u6b6a\u6f22\u5b57 " * 6
    body = {"prompt": emoji, "temperature": 0, "max_tokens": 48, "ignore_eos": True}
    whole = server.complete(emoji, max_tokens=48, ignore_eos=True)
    _, raw = raw_stream(server, "/v1/completions", body)
    pieces = [chunk["choices"][0]["text"] for chunk in events(raw)]
    assert "".join(pieces) == whole
    assert sum(piece.count("\ufffd") for piece in pieces) == whole.count("\ufffd")


def test_stop_string_is_never_sent_in_part(server):
    whole = server.complete("A B C D E F G H I J K", max_tokens=16)
    stop = whole[2:9]
    body = {"prompt": "A B C D E F G H I J K", "temperature": 0, "max_tokens": 16, "stop": [stop]}
    _, raw = raw_stream(server, "/v1/completions", body)
    assert "".join(chunk["choices"][0]["text"] for chunk in events(raw)) == whole[: whole.index(stop)]


def test_stop_that_never_comes_loses_nothing(server):
    whole = server.complete("Once upon a time", max_tokens=24)
    almost = [whole[-3:] + "\x00never", whole[:4] + "\x00never"]
    body = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 24, "stop": almost}
    _, raw = raw_stream(server, "/v1/completions", body)
    assert "".join(chunk["choices"][0]["text"] for chunk in events(raw)) == whole


def test_choices_are_interleaved_with_their_index(server):
    body = CHAT | {"n": 3, "temperature": 1, "seed": 3}
    _, raw = raw_stream(server, "/v1/chat/completions", body)
    texts, reasons = ["", "", ""], [None, None, None]
    for chunk in events(raw):
        choice = chunk["choices"][0]
        texts[choice["index"]] += choice["delta"].get("content") or ""
        reasons[choice["index"]] = choice["finish_reason"] or reasons[choice["index"]]
    assert all(reasons)
    whole = server.post("/v1/chat/completions", body).json()["choices"]
    assert texts == [choice["message"]["content"] for choice in whole]


def test_connection_is_kept_for_the_next_request(server):
    """A finished stream leaves the connection usable: the second request comes from the same client port."""
    ports = set()
    for _ in range(3):
        with server.http.stream("POST", "/v1/completions", json=COMPLETION | {"stream": True}) as response:
            ports.add(response.extensions["network_stream"].get_extra_info("client_addr")[1])
            response.read()
    assert len(ports) == 1


def test_logprobs_in_a_stream_equal_those_of_the_whole(server):
    body = CHAT | {"logprobs": True, "top_logprobs": 2}
    whole = server.post("/v1/chat/completions", body).json()["choices"][0]["logprobs"]["content"]
    _, raw = raw_stream(server, "/v1/chat/completions", body)
    streamed = []
    for chunk in events(raw):
        logprobs = chunk["choices"][0].get("logprobs")
        streamed += logprobs["content"] if logprobs else []
    assert streamed == whole
