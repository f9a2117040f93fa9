"""Flags of `kvasir serve` that are wrong, contradict each other or have no effect: each is named, with its number."""

import subprocess

import pytest

from kvasir_server import BINARY, MODELS


def serve(*flags, model=MODELS["smollm2"]):
    return subprocess.run([str(word) for word in (BINARY, "serve", model, "--port", 0, *flags)], capture_output=True,
                          text=True, timeout=60)


@pytest.mark.parametrize("flags, words", [
    (("--kv-persist", "/dev/null/x"), "/dev/null/x"),
    (("--kv-persist", ""), "--kv-persist"),
    (("--kv-persist", "/proc"), "/proc/lock"),
    (("--kv-persist", "/tmp", "--no-enable-prefix-caching"), "--no-enable-prefix-caching"),
    (("--kv-persist", "/tmp", "--kv-persist-size", "much"), "much"),
    (("--kv-persist", "/tmp", "--kv-persist-interval", "-1"), "--kv-persist-interval: '-1' is not a number from 0"),
    (("--kv-persist-interval", "5"), "--kv-persist-interval requires --kv-persist"),
    (("--kv-persist-size", "1G"), "--kv-persist-size requires --kv-persist"),
    (("--stream-keep-alive", "nan"), "--stream-keep-alive: 'nan' is not a number from 0 to 3600"),
    (("--stall-timeout", "nan"), "--stall-timeout: 'nan' is not a number from 0"),
    (("--stall-timeout", "-1"), "--stall-timeout: '-1'"),
    (("--max-queued-per-user", "10", "--max-num-queued-reqs", "5"), "10, and the whole queue has 5 places"),
    (("--block-size", "17"), "--block-size is 17; it must be a multiple of 16"),
    (("--max-model-len", "1"), "--max-model-len: Value 1"),
    (("--max-model-len", "9000"), "9000 is longer than the model's context of 8192 tokens"),
    (("--kv-memory", "300K"), "307200 bytes holds 0 blocks; a sequence needs at least 1 of 368640 bytes"),
    (("--max-itl", "0"), "--max-itl: Value 0"),
    (("--speculate", "off,ngram"), "--speculate: 'off' stands alone"),
    (("--speculate", "draft=a.gguf,draft=b.gguf"), "draft=a.gguf and draft=b.gguf: there can be one"),
    (("--speculate", "outputs=0"), "outputs=0: a whole number of MiB is needed, 1 to 4096"),
    (("--speculate", "layers=31"), "layers=31: the model has 30 layers"),
    (("--speculate-tokens", "17"), "--speculate-tokens: Value 17"),
    (("--spec-accept", "always"), "--spec-accept"),
])
def test_what_makes_no_sense_is_a_usage_error(flags, words):
    done = serve(*flags)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr


@pytest.mark.parametrize("flags, code, words", [
    (("--kv-memory", "900T"), 4, "943718400 MiB was asked for"),
    (("--speculate", "draft=/no/such.gguf"), 3, "/no/such.gguf"),
    (("--speculate", "medusa=/tmp"), 3, "'/tmp' has no model.safetensors"),
    (("--speculate", f"eagle={MODELS['smollm2']}"), 3, "heads are of 'eagle3'"),
])
def test_what_the_machine_or_a_file_lacks_has_its_own_exit_code(flags, code, words):
    done = serve(*flags)
    assert done.returncode == code, done.stderr
    assert words in done.stderr


@pytest.mark.parametrize("flags, words", [
    (("--speculate", "off", "--speculate-always"), "--speculate-always has no effect: --speculate off"),
    (("--speculate", "off", "--spec-accept", "rejection"), "--spec-accept rejection has no effect"),
    (("--share-cache-between-keys",), "--share-cache-between-keys has no effect: there are no API keys"),
])
def test_what_has_no_effect_is_said(flags, words):
    done = serve(*flags, model="/no/such.gguf")
    assert done.returncode == 3
    assert words in done.stderr
    assert "has no effect" not in serve("--api-key", "k", model="/no/such.gguf").stderr


def test_a_key_file_says_which_line_is_wrong(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# ours\nsecret weight=2\nother\nsecret weight=3\n")
    done = serve("--api-key-file", keys)
    assert done.returncode == 2
    assert "line 4: the key stands in line 2 already" in done.stderr and "secret" not in done.stderr
