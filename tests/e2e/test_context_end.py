"""The end of the context: answers end there with "length", longer conversations are refused, by one rule."""

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
