"""What the server takes under a ceiling: a real cgroup with a limit, where this machine lets us make one."""

import concurrent.futures
import contextlib
import os
import pathlib
import re
import time

import pytest

import kvasir_server

MIB = 1 << 20


def cgroup_parent():
    """The folder of our own memory cgroup and whether it is version 2; (None, False) where there is none."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return pathlib.Path("/sys/fs/cgroup/memory" + path), False
        if controllers == "" and pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists():
            return pathlib.Path("/sys/fs/cgroup" + path), True
    return None, False


@contextlib.contextmanager
def cgroup(limit):
    """A memory cgroup with that limit; yields its folder and the words that put a command into it."""
    parent, v2 = cgroup_parent()
    if parent is None:
        pytest.skip("no memory cgroup is mounted")
    folder = parent / f"kvasir-e2e-{os.getpid()}-{time.monotonic_ns()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        try:
            (folder / ("memory.max" if v2 else "memory.limit_in_bytes")).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"no limit can be set here: {error}")
        yield folder, v2, ("sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh")
    finally:
        for _ in range(50):
            with contextlib.suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.1)


def most_used(folder, v2):
    """Bytes: the high-water mark of the cgroup."""
    name = "memory.peak" if v2 else "memory.max_usage_in_bytes"
    return int((folder / name).read_text()) if (folder / name).exists() else None


def times_killed(folder, v2):
    text = (folder / ("memory.events" if v2 else "memory.oom_control")).read_text()
    found = re.search(r"oom_kill (\d+)", text)
    return int(found.group(1)) if found else 0


def ask_much(server, requests=30, words=300):
    """So many different prompts that the whole pool is used and used again."""
    def one(number):
        prompt = " ".join(str((number * 7919 + i * 31) % 9973) for i in range(words))
        answer = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 16, "ignore_eos": True})
        assert answer.status_code == 200, answer.text

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(requests)))


def kv_line(server):
    return next(line for line in server.log().splitlines() if line.startswith("  KV cache"))


def tokens_in_pool(server):
    return int(re.search(r": (\d+) tokens in blocks", kv_line(server)).group(1))


def test_the_pool_is_sized_from_the_limit_and_never_outgrows_it():
    limit = 512 * MIB
    tokens = {}
    for dtype in ("f16", "int8"):
        with cgroup(limit) as (folder, v2, wrapper):
            with kvasir_server.running("smollm2", "--kv-cache-dtype", dtype, wrapper=wrapper) as server:
                assert re.search(r"container's limit of 512 MiB", kv_line(server)), kv_line(server)
                assert re.search(r"room for \d+ conversations? of all \d+ tokens", server.log())
                tokens[dtype] = tokens_in_pool(server)
                assert server.metrics()["vllm:cache_config_info"] == 1
                wanted = "int8_per_token_head" if dtype == "int8" else "float16"
                assert f'cache_dtype="{wanted}"' in server.http.get("/metrics").text
                ask_much(server)
                metrics = server.metrics()
                assert metrics["process_resident_memory_bytes"] < limit
                assert server.process.poll() is None
                assert times_killed(folder, v2) == 0
                assert (most_used(folder, v2) or 0) <= limit
    assert 1.8 < tokens["int8"] / tokens["f16"] < 2.2, tokens


def test_more_than_the_limit_is_refused_with_the_numbers():
    with cgroup(400 * MIB) as (_, _, wrapper):
        with pytest.raises(AssertionError) as error:
            with kvasir_server.running("smollm2", "--kv-memory", "390M", wrapper=wrapper):
                pass
    assert "status 4" in str(error.value)
    assert "390 MiB" in str(error.value) and "limit of 400 MiB" in str(error.value)
    assert "at most" in str(error.value)


def test_resident_memory_is_flat_once_the_pool_is_in_use():
    with kvasir_server.running("smollm2", "--kv-memory", "48M") as server:
        ask_much(server, 12)
        before = server.metrics()["process_resident_memory_bytes"]
        for _ in range(3):
            ask_much(server, 15, 150)
        after = server.metrics()["process_resident_memory_bytes"]
        assert after - before < 12 * MIB, f"{before / MIB:.1f} MiB became {after / MIB:.1f}"
        assert server.is_idle()
