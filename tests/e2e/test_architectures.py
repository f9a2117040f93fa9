"""The small models of every architecture (tests/data/tiny) through the verbs, as files that a person may have."""

import json
import pathlib
import subprocess
import tarfile

import pytest

import kvasir_server
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
    of_a_head = 2 * head
    if "kv_lora_rank" in config:
        of_a_head = config["qk_nope_head_dim"] + config["qk_rope_head_dim"] + config["v_head_dim"]
    plain = config["num_hidden_layers"] * config["num_attention_heads"] * of_a_head * 2
    assert said["plain_kv_bytes_per_token"] == plain
    assert said["context_length"] == config["max_position_embeddings"]
    assert said["sliding_window"] == (config.get("sliding_window") or 0)


def test_inspect_says_what_a_token_uses_of_experts(folder):
    said = json.loads(kvasir("inspect", folder / "qwen3moe.gguf", "--json"))
    assert (said["experts"], said["experts_used"], said["expert_ffn_dim"]) == (8, 3, 32)
    idle = 2 * (8 - 3) * 3 * 64 * 32  # layers, experts that are not chosen, their three matrices
    assert said["active_parameters"] == said["parameters"] - idle
    embedding = (268 - 1) * 64  # of which a token takes one row
    assert said["weight_bytes_per_token"] <= said["weight_bytes"] - 4 * (idle + embedding)
    experts = 2 * 8 * 3 * 64 * 32 * 4  # as F32
    assert (said["expert_bytes"], said["active_expert_bytes"]) == (experts, experts * 3 // 8)
    text = kvasir("inspect", folder / "qwen3moe.gguf")
    assert "8 of width 32 in each of 2 layers, a token goes to 3" in text
    assert " of them for a token alone" in text and " as kernels read them, " in text


@pytest.mark.parametrize("name", NAMES)
def test_plan_reads_its_file_and_its_config(folder, name):
    for path in (folder / f"{name}.gguf", folder / f"{name}.json"):
        plan = kvasir("plan", path, "--machine", "Apple M3", "-c", 128, "--prompt", 100)
        assert "KV cache per token" in plan
        assert "does not run the architecture" not in plan


def test_plan_says_what_steps_touch_of_experts(folder):
    plan = json.loads(kvasir("plan", folder / "qwen3moe.gguf", "--machine", "Apple M3", "-c", 128, "--users", 2, "-o",
                             "json"))
    by_id = {quantity["id"]: quantity["value"] for quantity in plan["quantities"]}
    experts = 2 * 8 * 3 * 64 * 32 * 4
    assert by_id["expert_bytes"] == experts
    assert by_id["active_expert_bytes"] == experts * 3 / 8
    assert by_id["touched_expert_bytes"] == pytest.approx(experts * (1 - (5 / 8) ** 2))
    said = json.loads(kvasir("inspect", folder / "qwen3moe.gguf", "--json"))
    assert by_id["active_parameters"] == pytest.approx(said["active_parameters"], rel=0.02)  # without norms
    # Panels of 16 columns are filled up in memory.
    assert by_id["weight_bytes_read"] == pytest.approx(said["weight_bytes_per_token"], rel=0.02)
    assert by_id["embedding_bytes"] == 268 * 64 * 4
    assert "8 routed experts in each of 2 layers" in kvasir("plan", folder / "qwen3moe.gguf", "--machine", "Apple M3")


@pytest.mark.parametrize("name", ["command-r-plus", "gemma2", "phi3-long", "qwen2moe", "gpt-oss", "deepseek-v2-lite",
                                  "deepseek-v3"])
def test_run_answers(folder, name):
    words = ("-p", "the thing", "--temperature", 0, "-n", 8)
    assert kvasir("run", folder / f"{name}.gguf", *words) == kvasir("run", folder / f"{name}.gguf", *words)


@pytest.mark.parametrize("flags", [(), ("--kv-cache-dtype", "int8")])
@pytest.mark.parametrize("name", ["qwen3moe", "minicpm3", "deepseek-v3"])
def test_a_restarted_server_knows_its_prefixes(folder, tmp_path, name, flags):
    prompt = "The keeper of the lighthouse counts the turns of the lamp until the day begins"

    def ask(server):
        body = {"prompt": prompt, "temperature": 0, "max_tokens": 16, "ignore_eos": True, "logprobs": 1}
        answer = server.post("/v1/completions", body)
        assert answer.status_code == 200, answer.text
        choice, usage = answer.json()["choices"][0], answer.json()["usage"]
        return choice["text"], choice["logprobs"]["token_logprobs"], usage["prompt_tokens_details"]["cached_tokens"]

    def serving():
        return kvasir_server.running(folder / f"{name}.gguf", "--kv-persist", tmp_path / "kv", "--kv-memory", "16M", *flags)

    with serving() as server:
        text, logprobs, cached = ask(server)
        assert len(logprobs) == 16 and cached == 0
        assert ask(server)[:2] == (text, logprobs)
    with serving() as server:
        assert "restored from" in server.log()
        again, same, cached = ask(server)
    assert cached >= 48
    assert (again, same) == (text, logprobs)
