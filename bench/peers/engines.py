"""How each engine is started and asked for its speeds. An engine answers

bench(model)        tokens per second by test: pp512, tg64, tg64@b8, tg64@b32
serve(model, port)  a running server, as a context manager
variants            settings worth trying, of which the best counts
"""

import contextlib
import json
import pathlib
import subprocess
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BATCHES = (8, 32)
PROMPT, GENERATE = 512, 64
START_TIMEOUT_S = 120


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


@contextlib.contextmanager
def server(command, port):
    """Starts a server, waits until /health answers 200, and ends it afterwards."""
    with open(ROOT / "build" / "peer-server.log", "w") as log:
        process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log, cwd=ROOT)
        try:
            wait_until_up(process, port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until_up(process, port):
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode}, see build/peer-server.log")
        with contextlib.suppress(urllib.error.URLError, OSError):
            if urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).status == 200:
                return
        time.sleep(0.2)
    raise RuntimeError(f"the server was not up after {START_TIMEOUT_S} s")


class Kvasir:
    name = "Kvasir"
    variants = ((),)

    def __init__(self, threads):
        self.program = ROOT / "build" / "release" / "kvasir"
        self.threads = threads

    def bench(self, model, variant):
        batches = ",".join(str(batch) for batch in (1, *BATCHES))
        out = run([self.program, "bench", model, "-p", PROMPT, "-n", GENERATE, "-b", batches, "-r", 1,
                   "--threads", self.threads, "-o", "json", *variant])
        return {row["test"]: row["tokens_per_second"] for row in json.loads(out)}

    def serve(self, model, port, clients, variant):
        return server([self.program, "serve", model, "--port", port, "--threads", self.threads,
                       "--max-num-seqs", clients, *variant], port)


class LlamaCpp:
    name = "llama.cpp"
    # Flash attention and repacking, each of which wins somewhere.
    variants = tuple((attention, repack) for attention in ("off", "on") for repack in (1, 0))

    def __init__(self, threads):
        self.bin = ROOT / ".venv-peers" / "llama.cpp" / "build" / "bin"
        self.threads = threads

    def bench(self, model, variant):
        attention, repack = variant
        out = run([self.bin / "llama-bench", "-m", model, "-p", PROMPT, "-n", GENERATE, "-r", 1, "-t", self.threads,
                   "-fa", attention, "--repack", repack, "-o", "json"])
        result = {}
        for row in json.loads(out):
            result[f"pp{PROMPT}" if row["n_prompt"] else f"tg{GENERATE}"] = row["avg_ts"]
        context = max(BATCHES) * (GENERATE + 16)
        command = [self.bin / "llama-batched-bench", "-m", model, "-c", context, "-npp", 8, "-ntg", GENERATE,
                   "-npl", ",".join(map(str, BATCHES)), "-t", self.threads, "-fa", attention,
                   "--output-format", "jsonl"]
        for line in run(command + ([] if repack else ["-nr"])).splitlines():
            if line.startswith("{"):
                row = json.loads(line)
                result[f"tg{row['tg']}@b{row['pl']}"] = row["speed_tg"]
        return result

    def serve(self, model, port, clients, variant):
        attention, repack = variant
        command = [self.bin / "llama-server", "-m", model, "--port", port, "-t", self.threads, "-np", clients,
                   "-c", clients * 512, "-fa", attention]
        return server(command + ([] if repack else ["-nr"]), port)

    def accuracy(self, model, golden):
        return json.loads(run([self.bin / "llama-accuracy", model, golden]))
