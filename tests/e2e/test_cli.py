"""The verbs of the binary as a person types them."""

import json
import signal
import subprocess
import time

import pytest

from kvasir_server import BINARY, MODELS


def kvasir(*arguments, **kwargs):
    command = [str(word) for word in (BINARY, *arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **kwargs)


def test_help_names_every_verb():
    done = kvasir("--help")
    assert done.returncode == 0
    for verb in ("serve", "run", "inspect", "bench", "plan", "dump-hidden"):
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


def test_ctrl_c_ends_run_while_it_waits_for_input():
    process = subprocess.Popen([BINARY, "run", MODELS["smollm2"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        for line in process.stderr:
            if "Loaded" in line:
                break
        time.sleep(0.3)  # from the line to the wait for input
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
    finally:
        process.kill()
        process.communicate()


def test_output_that_cannot_be_written_is_an_error():
    for arguments in (("run", MODELS["smollm2"], "-p", "Hi", "-n", 8), ("inspect", MODELS["smollm2"])):
        with open("/dev/full", "w") as full:
            done = subprocess.run([str(word) for word in (BINARY, *arguments)], stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=120)
        assert done.returncode == 1
        assert "cannot write standard output: No space left on device" in done.stderr


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
    done = kvasir("bench", MODELS["smollm2"], "-p", 64, "-n", 8, "-b", "1,8", "-r", 2, "-o", "json", "--no-machine")
    assert done.returncode == 0, done.stderr
    rows = {row["test"]: row for row in json.loads(done.stdout)}
    assert set(rows) >= {"pp64", "tg8", "tg8@b8"}
    for row in rows.values():
        assert row["tokens_per_second"] > 0 and len(row["samples"]) == 2
    assert rows["tg8@b8"]["tokens_per_second"] > rows["tg8"]["tokens_per_second"]


def test_bench_compares_with_the_machine_it_measured(tmp_path):
    profile = tmp_path / "machine.json"
    done = kvasir("bench", "machine", "--quick", "-o", "json", "--output", profile)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(profile.read_text())
    done = kvasir("bench", MODELS["smollm2"], "-p", 64, "-n", 8, "-d", 32, "-b", 2, "-r", 1, "-o", "json",
                  "--machine", profile)
    assert done.returncode == 0, done.stderr
    rows = {row["test"]: row for row in json.loads(done.stdout)}
    assert set(rows) == {"pp64@b2@d32", "tg8@b2@d32"}
    for row in rows.values():
        assert row["read_part"] > 0 and row["compute_part"] > 0 and row["bound"] in ("memory", "compute")
        assert row["gb_per_second"] > 0 and row["machine_after"]["clock_hz"] > 0


def test_bench_refuses_a_profile_that_is_none(tmp_path):
    profile = tmp_path / "machine.json"
    profile.write_text('{"version": 99}')
    done = kvasir("bench", MODELS["smollm2"], "--machine", profile)
    assert done.returncode == 2
    assert "'version' is 99" in done.stderr and "kvasir bench machine" in done.stderr


@pytest.mark.parametrize("drafter, code, words", [
    ("layers=99", 2, "layers=99: the model has 30 layers"),
    ("medusa=/nonexistent", 3, "cannot open '/nonexistent'"),
])
def test_bench_speculate_refuses_a_drafter_before_it_measures(drafter, code, words):
    done = kvasir("bench", "speculate", MODELS["smollm2"], "--speculate", drafter)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr


def test_bench_speculate_compares_with_off():
    done = kvasir("bench", "speculate", MODELS["smollm2"], "-w", "quote", "-b", 1, "-n", 16, "-r", 1, "-k", "0,2",
                  "--speculate", "ngram", "-o", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [(row["drafter"], row["k"]) for row in rows] == [("off", None), ("ngram", 0), ("ngram", 2), ("ngram", None)]
    for row in rows:
        assert row["tokens_per_second"] > 0 and row["differing"] == 0


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


def read_dump(path):
    """Header and raw bytes of each tensor."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    body = data[8 + length:]
    return header, {name: body[slice(*entry["data_offsets"])] for name, entry in header.items() if name != "__metadata__"}


def test_dump_hidden_writes_the_same_bytes_whatever_the_batch(tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("What is the capital of Japan?\nWhat is two and two?\n\"Say:\\nyes\"\n")
    dumps = []
    for name, rows, sequences in (("a", 256, 16), ("b", 16, 1)):
        path = tmp_path / name
        done = kvasir("dump-hidden", MODELS["smollm2"], "--prompts", prompts, "-o", path, "-n", 12, "--points",
                      "2,15,output", "--max-num-batched-tokens", rows, "--max-num-seqs", sequences)
        assert done.returncode == 0, done.stderr
        assert "3 prompts" in done.stdout
        dumps.append(read_dump(path))
    assert dumps[0] == dumps[1]
    header, tensors = dumps[0]
    tokens, points, width = header["hidden"]["shape"]
    assert (points, width) == (3, 576) and header["hidden"]["dtype"] == "F16"
    assert header["tokens"]["shape"] == [tokens] and header["starts"]["shape"] == [4]
    assert header["__metadata__"]["points"] == "2,15,output"
    starts = [int.from_bytes(tensors["starts"][8 * i:8 * i + 8], "little") for i in range(4)]
    assert starts[0] == 0 and starts[3] == tokens
    assert not list(tmp_path.glob("*.part"))


def test_dump_hidden_refuses_what_it_cannot_write(tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("Hello\n")
    done = kvasir("dump-hidden", MODELS["smollm2"], "--prompts", prompts, "-o", tmp_path / "no" / "where", "-n", 2)
    assert done.returncode == 1
    assert "No such file" in done.stderr
