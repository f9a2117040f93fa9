"""Guesses over HTTP and in the terminal: never another letter, a request's own choice, and the numbers users see."""

import re
import subprocess

import pytest

import kvasir_server
from kvasir_server import BINARY, MODELS

COPY = "Repeat: the quick brown fox jumps over the lazy dog, then sleeps. " * 6 + "Repeat: the quick"


@pytest.fixture(scope="module")
def guessing():
    """Guesses are verified whether or not that pays, so that some are on any machine."""
    with kvasir_server.running("smollm2", "--speculate", "ngram,suffix", "--speculate-always") as server:
        yield server


def ask(server, **fields):
    answer = server.post("/v1/completions", {"prompt": COPY, "max_tokens": 60, "temperature": 0, "ignore_eos": True,
                                             **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def accepted(answer):
    return answer["usage"]["completion_tokens_details"]["accepted_prediction_tokens"]


def test_a_request_chooses_among_the_servers_drafters_and_gets_the_same_text(guessing):
    without = ask(guessing, speculate="off")
    assert accepted(without) == 0 and "speculation" not in without["usage"]
    for wish in ("auto", "ngram", "suffix", "ngram,suffix"):
        answer = ask(guessing, speculate=wish)
        assert answer["choices"][0]["text"] == without["choices"][0]["text"]
        assert accepted(answer) > 10, wish
    for wish in ("medusa", "NGRAM", "", "off,ngram", "ngram=2", "draft=/etc/passwd"):
        refused = guessing.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "speculate": wish})
        assert refused.status_code == 400, wish
        assert refused.json()["error"]["param"] == "speculate"


def test_usage_and_metrics_say_what_guesses_did(guessing):
    names = {name: f"vllm:spec_decode_num_{name}_total" for name in
             ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos")}
    before = guessing.metrics()
    usage = ask(guessing, n=2)["usage"]
    said, details = usage["speculation"], usage["completion_tokens_details"]
    right, wrong = details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]
    assert sum(said["accepted_per_position"]) == right
    assert said["accepted_per_position"] == sorted(said["accepted_per_position"], reverse=True)
    assert said["mean_acceptance_length"] == pytest.approx(1 + right / said["drafts"])
    assert said["tokens_per_step"] == pytest.approx(120 / (120 - right))

    def counted(metrics):
        return all(metrics[names[name]] - before[names[name]] == value for name, value in (
            ("drafts", said["drafts"]), ("draft_tokens", right + wrong), ("accepted_tokens", right),
            ("accepted_tokens_per_pos", right)))

    assert guessing.wait_for_metrics(counted, 3)
    saved = guessing.metrics()["kvasir_spec_saved_seconds"] - before["kvasir_spec_saved_seconds"]
    assert saved * 1e3 == pytest.approx(said["saved_ms"], abs=0.01)


def test_run_ends_with_them():
    done = subprocess.run([BINARY, "run", MODELS["smollm2"], "-p", COPY, "-n", "60", "--temperature", "0",
                           "--speculate-always"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\[\d+ tokens, [\d.]+ tokens/s, \d+ of \d+ guesses right, [\d.]+ tokens per step(, [\d.]+ s "
                     r"(saved|lost))?; prompt", done.stderr), done.stderr
    off = subprocess.run([BINARY, "run", MODELS["smollm2"], "-p", COPY, "-n", "60", "--temperature", "0",
                          "--speculate", "off"], capture_output=True, text=True, timeout=120)
    assert off.stdout == done.stdout
    assert "guesses" not in off.stderr


def test_the_log_says_what_a_choice_of_guesses_rests_on():
    with kvasir_server.running("smollm2", "--speculate", "ngram", "--log-level", "debug") as server:
        ask(server)
        assert re.search(r"request \d+: \d+ guesses; a step takes [\d.]+ ms, with 1, 2, 4, 8 guesses .*ngram", server.log())
