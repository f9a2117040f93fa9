"""The small models of every architecture (tests/data/tiny) through the verbs, as files that a person may have."""

import json
import pathlib
import subprocess
import tarfile

import pytest

from kvasir_server import BINARY

ARCHIVE = pathlib.Path(__file__).resolve().parent.parent / "data" / "tiny" / "models.tar.xz"
with tarfile.open(ARCHIVE) as archive:
    NAMES = [name[:-5] for name in archive.getnames() if name.endswith(".gguf")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    with tarfile.open(ARCHIVE) as opened:
        opened.extractall(path)
    return path


def kvasir(*arguments):
    done = subprocess.run([str(word) for word in (BINARY, *arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def config_of(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_inspect_says_what_the_cache_takes(folder, name):
    config = config_of(folder, name)
    said = json.loads(kvasir("inspect", folder / f"{name}.gguf", "--json"))
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    values = 2 * config["num_key_value_heads"] * head
    if "kv_lora_rank" in config:  # one row of latent and rotated key
        values = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    assert said["kv_bytes_per_token"] == config["num_hidden_layers"] * values * 2
    assert said["context_length"] == config["max_position_embeddings"]
    assert said["sliding_window"] == (config.get("sliding_window") or 0)


def test_inspect_says_what_a_token_uses_of_experts(folder):
    said = json.loads(kvasir("inspect", folder / "qwen3moe.gguf", "--json"))
    assert (said["experts"], said["experts_used"], said["expert_ffn_dim"]) == (8, 3, 32)
    idle = 2 * (8 - 3) * 3 * 64 * 32  # layers, experts that are not chosen, their three matrices
    assert said["active_parameters"] == said["parameters"] - idle
    embedding = (268 - 1) * 64  # of which a token takes one row
    assert said["weight_bytes_per_token"] <= said["weight_bytes"] - 4 * (idle + embedding)
    text = kvasir("inspect", folder / "qwen3moe.gguf")
    assert "8 of width 32 in each of 2 layers, a token goes to 3" in text


@pytest.mark.parametrize("name", NAMES)
def test_plan_reads_its_file_and_its_config(folder, name):
    for path in (folder / f"{name}.gguf", folder / f"{name}.json"):
        plan = kvasir("plan", path, "--machine", "Apple M3", "-c", 128, "--prompt", 100)
        assert "KV cache per token" in plan
        assert "does not run the architecture" not in plan


@pytest.mark.parametrize("name", ["command-r-plus", "gemma2", "phi3-long", "qwen2moe", "gpt-oss", "deepseek-v2-lite",
                                  "deepseek-v3"])
def test_run_answers(folder, name):
    words = ("-p", "the thing", "--temperature", 0, "-n", 8)
    assert kvasir("run", folder / f"{name}.gguf", *words) == kvasir("run", folder / f"{name}.gguf", *words)
