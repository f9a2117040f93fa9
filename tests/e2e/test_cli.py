"""The verbs of the binary as a person types them."""

import json
import subprocess

import pytest

from kvasir_server import BINARY, MODELS


def kvasir(*arguments, **kwargs):
    command = [str(word) for word in (BINARY, *arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **kwargs)


def test_help_names_every_verb():
    done = kvasir("--help")
    assert done.returncode == 0
    for verb in ("serve", "run", "inspect", "bench"):
        assert verb in done.stdout
        assert kvasir(verb, "--help").returncode == 0


def test_run_answers_and_ends_with_its_speeds():
    done = kvasir("run", MODELS["smollm2"], "-p", "What is the capital of Japan?", "--temperature", 0, "-n", 32)
    assert done.returncode == 0, done.stderr
    assert "Tokyo" in done.stdout
    assert "tokens/s" in done.stdout + done.stderr


def test_run_chats_from_standard_input():
    done = kvasir("run", MODELS["smollm2"], "--temperature", 0, "-n", 32, input="What is the capital of Japan?\n")
    assert done.returncode == 0, done.stderr
    assert "Tokyo" in done.stdout


@pytest.mark.parametrize("name, architecture", [("smollm2", "llama"), ("gemma", "gemma3"), ("qwen-0.5b", "qwen2")])
def test_inspect(name, architecture):
    if not MODELS[name].is_file():
        pytest.skip(f"{name} is not in models/")
    done = kvasir("inspect", MODELS[name])
    assert done.returncode == 0, done.stderr
    assert architecture in done.stdout


def test_int8_kv_takes_about_half_the_memory():
    def bytes_per_token(*flags):
        done = kvasir("inspect", MODELS["smollm2"], "--json", *flags)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["kv_bytes_per_token"]

    halves = bytes_per_token()
    assert halves == bytes_per_token("--kv-cache-dtype", "f16") == 30 * 3 * 2 * 64 * 2
    assert bytes_per_token("--kv-cache-dtype", "int8") == 30 * 3 * 2 * (64 + 4)
    refused = kvasir("inspect", MODELS["smollm2"], "--kv-cache-dtype", "fp8")
    assert refused.returncode == 2 and "int8" in refused.stderr


def test_run_answers_with_int8_kv():
    done = kvasir("run", MODELS["smollm2"], "-p", "What is the capital of Japan?", "--temperature", 0, "-n", 32,
                  "--kv-cache-dtype", "int8")
    assert done.returncode == 0, done.stderr
    assert "Tokyo" in done.stdout


def test_bench_writes_json():
    done = kvasir("bench", MODELS["smollm2"], "-p", 64, "-n", 8, "-b", "1,8", "-r", 2, "-o", "json")
    assert done.returncode == 0, done.stderr
    rows = {row["test"]: row for row in json.loads(done.stdout)}
    assert set(rows) >= {"pp64", "tg8", "tg8@b8"}
    for row in rows.values():
        assert row["tokens_per_second"] > 0 and len(row["samples"]) == 2
    assert rows["tg8@b8"]["tokens_per_second"] > rows["tg8"]["tokens_per_second"]


@pytest.mark.parametrize("make", [
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(b"GGUF" + b"\xff" * 60),
    lambda path: path.write_bytes(MODELS["smollm2"].read_bytes()[:1_000_000]),
    lambda path: path.write_text("not a model"),
])
def test_bad_files_are_refused_in_words(tmp_path, make):
    path = tmp_path / "bad.gguf"
    make(path)
    for verb in ("serve", "run", "inspect"):
        done = kvasir(verb, path)
        assert 0 < done.returncode < 128, f"exit status {done.returncode}"
        assert len(done.stderr.strip()) > 10


def test_missing_file_and_bad_flags():
    assert "no-such-file" in kvasir("serve", "no-such-file.gguf").stderr
    assert kvasir("serve", MODELS["smollm2"], "--no-such-flag").returncode != 0
    assert kvasir("serve", MODELS["smollm2"], "--isa", "z80").returncode != 0
