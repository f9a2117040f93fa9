"""The end of the context: answers end there with "length", longer conversations are refused, by one rule."""

import re

import pytest

import kvasir_server
from kvasir_server import MODELS

WINDOW = 256


@pytest.mark.parametrize("model", ["smollm2", "qwen-0.5b"])
def test_a_conversation_goes_to_the_end_of_the_context_and_not_beyond(model):
    if not MODELS[model].is_file():
        pytest.skip(f"{model} is not in models/")
    with kvasir_server.running(model, "--max-model-len", WINDOW) as server:
        secret = {"role": "system", "content": "The password is lighthouse. Never forget it."}
        messages = [secret, {"role": "user", "content": "Tell me a long story about the sea. " * 4}]

        def ask(**fields):
            return server.post("/v1/chat/completions",
                               {"messages": messages, "temperature": 0, "ignore_eos": True, **fields})

        answer = ask().json()
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["total_tokens"] == WINDOW, "up to the last place, and nothing shifted out"

        # The conversation goes on and no longer fits: whoever asks, however, is told so with both numbers.
        messages += [{"role": "assistant", "content": answer["choices"][0]["message"]["content"]},
                     {"role": "user", "content": "What is the password?"}]
        count = server.post("/tokenize", {"messages": messages}).json()["count"]
        assert count >= WINDOW
        for fields in ({}, {"max_tokens": 1}, {"stream": True}, {"n": 2}):
            refused = ask(**fields)
            assert refused.status_code == 400, fields
            error = refused.json()["error"]
            assert error["code"] == "context_length_exceeded"
            assert error["n_prompt_tokens"] == count and error["n_ctx"] == WINDOW
            assert str(count) in error["message"] and str(WINDOW) in error["message"]

        # Shortened by its client, it is answered; nothing of the refused ones is left behind.
        del messages[2]
        shorter = ask(max_tokens=8)
        assert shorter.status_code == 200
        assert server.is_idle()


def test_an_echo_fills_the_whole_context():
    with kvasir_server.running("smollm2", "--max-model-len", 32) as server:
        def echo(tokens, **fields):
            body = {"prompt": list(range(100, 100 + tokens)), "echo": True, "max_tokens": 0, "logprobs": 0}
            return server.post("/v1/completions", body | fields)

        for fields in ({}, {"n": 2}):
            answer = echo(32, **fields).json()
            for choice in answer["choices"]:
                assert choice["finish_reason"] == "length"
                assert len(choice["logprobs"]["tokens"]) == 32
                assert all(value < 0 for value in choice["logprobs"]["token_logprobs"][1:])
            assert answer["usage"]["completion_tokens"] == 0
        assert echo(33).json()["error"]["code"] == "context_length_exceeded"
        assert echo(32, max_tokens=1).json()["error"]["code"] == "context_length_exceeded"
        assert server.is_idle()


def test_a_model_with_windows_serves_more_than_its_pool_holds_without_them():
    """What leaves a window is given back, so that one conversation may be longer than all blocks together would hold:
    as long as the log and the list of models say."""
    if not MODELS["gemma"].is_file():
        pytest.skip("gemma is not in models/")
    with kvasir_server.running("gemma", "--max-model-len", 4096) as roomy:
        with kvasir_server.running("gemma", "--kv-memory", "12M", "--max-model-len", 4096) as tight:
            window = tight.http.get("/v1/models").json()["data"][0]["max_model_len"]
            assert f"max_model_len is {window} instead of 4096" in tight.log()
            tokens_in_all = int(re.search(r"(\d+) tokens in all", tight.log())[1])
            assert window > 2 * tokens_in_all
            prompt = [100 + i * 7 % 900 for i in range(window - 8)]

            def ask(server, ids):
                return server.post("/v1/completions", {"prompt": ids, "max_tokens": 8, "temperature": 0,
                                                       "ignore_eos": True, "return_token_ids": True})

            answers = [ask(server, prompt).json()["choices"][0]["token_ids"] for server in (roomy, tight)]
            assert answers[0] == answers[1] and len(answers[0]) == 8
            refused = ask(tight, prompt + [100])
            assert refused.status_code == 400 and refused.json()["error"]["n_ctx"] == window
            assert 'state="used"} 0\n' in tight.http.get("/metrics").text
