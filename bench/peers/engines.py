"""How each engine is started and asked for its speeds. An engine has

variants                      settings worth trying, of which the best counts
long_variants(best)           those worth trying in long tests, given the best of each short test
bench(model, variant, tests)  tokens per second by test; Refused when it cannot open the file
serve(model, port, ...)       a running server, as a context manager; None where it has no server
describe(variant)             the setting in words

Tests are named as `kvasir bench` names them: pp512 reads 512 tokens, tg64@b8 writes 64 tokens in each of 8
sequences, @d2048 after 2,048 others; all count tokens of all sequences.
"""

import contextlib
import json
import pathlib
import re
import subprocess
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHORT_TESTS = ("pp512", "tg64", "tg64@b8", "tg64@b32")
LONG_TESTS = ("pp2048@b8", "tg64@b8@d2048", "tg64@d4096")
START_TIMEOUT_S = 120
NAME = re.compile(r"^(pp|tg)(\d+)(?:@b(\d+))?(?:@d(\d+))?$")


class Refused(Exception):
    """The engine is here and cannot run this file."""


def parse(test):
    """(prompt tokens, generated tokens, sequences, depth) of a test's name; one of the first two is 0."""
    kind, tokens, batch, depth = NAME.match(test).groups()
    count = int(tokens)
    return (count if kind == "pp" else 0, count if kind == "tg" else 0, int(batch or 1), int(depth or 0))


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def log_path(port):
    return ROOT / "build" / f"peer-server-{port}.log"


@contextlib.contextmanager
def server(command, port):
    """Starts a server, waits until /health answers 200, and ends it afterwards."""
    with open(log_path(port), "w") as log:
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
            raise RuntimeError(f"the server ended with status {process.returncode}, see {log_path(port)}")
        with contextlib.suppress(urllib.error.URLError, OSError):
            if urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).status == 200:
                return
        time.sleep(0.2)
    raise RuntimeError(f"the server was not up after {START_TIMEOUT_S} s")


class Kvasir:
    name = "Kvasir"
    variants = ((),)

    def long_variants(self, best):
        return self.variants

    def __init__(self, threads):
        self.program = ROOT / "build" / "release" / "kvasir"
        self.threads = threads

    def bench(self, model, variant, tests):
        result = {}
        for test in tests:
            prompt, generate, batch, depth = parse(test)
            out = run([self.program, "bench", model, "-p", prompt, "-n", generate, "-b", batch, "-d", depth, "-r", 1,
                       "--threads", self.threads, "--no-machine", "-o", "json", *variant])
            result |= {row["test"]: row["tokens_per_second"] for row in json.loads(out)}
        return result

    def serve(self, model, port, clients, variant):
        return server([self.program, "serve", model, "--port", port, "--threads", self.threads,
                       "--max-num-seqs", clients, *variant], port)

    def describe(self, variant):
        return " ".join(variant)


class LlamaCpp:
    name = "llama.cpp"
    # Flash attention and repacking, each of which wins somewhere.
    variants = tuple((attention, repack) for attention in ("off", "on") for repack in (1, 0))

    def long_variants(self, best):
        repack = best["pp512"][1]
        return tuple((attention, repack) for attention in ("off", "on"))

    def __init__(self, threads):
        self.bin = ROOT / ".venv-peers" / "llama.cpp" / "build" / "bin"
        self.threads = threads

    def bench(self, model, variant, tests):
        result, batched = {}, {}
        for test in tests:
            prompt, generate, batch, depth = parse(test)
            if batch == 1:
                result[test] = self.one_sequence(model, variant, prompt, generate, depth)
            else:
                # Tests of one batched run: it reads the prompts and then writes.
                kind = "pp" if prompt else "tg"
                batched.setdefault((batch, prompt or depth or 8), {})[kind] = (test, generate)
        for (batch, prompt), kinds in batched.items():
            generate = kinds["tg"][1] if "tg" in kinds else 1
            row = self.many_sequences(model, variant, prompt, generate, batch)
            result |= {test: row[f"speed_{kind}"] for kind, (test, _) in kinds.items()}
        return result

    def one_sequence(self, model, variant, prompt, generate, depth):
        attention, repack = variant
        out = run([self.bin / "llama-bench", "-m", model, "-p", prompt, "-n", generate, "-d", depth, "-r", 1,
                   "-t", self.threads, "-fa", attention, "--repack", repack, "-o", "json"])
        return json.loads(out)[0]["avg_ts"]

    def many_sequences(self, model, variant, prompt, generate, batch):
        attention, repack = variant
        command = [self.bin / "llama-batched-bench", "-m", model, "-c", batch * (prompt + generate + 16),
                   "-npp", prompt, "-ntg", generate, "-npl", batch, "-t", self.threads, "-fa", attention,
                   "--output-format", "jsonl"]
        lines = run(command + ([] if repack else ["-nr"])).splitlines()
        return json.loads(next(line for line in lines if line.startswith("{")))

    def serve(self, model, port, clients, variant):
        attention, repack = variant
        command = [self.bin / "llama-server", "-m", model, "--port", port, "-t", self.threads, "-np", clients,
                   "-c", clients * 512, "-fa", attention]
        return server(command + ([] if repack else ["-nr"]), port)

    def describe(self, variant):
        return f"flash attention {variant[0]}, repacking {'on' if variant[1] else 'off'}"

    def accuracy(self, model, golden):
        return json.loads(run([self.bin / "llama-accuracy", model, golden]))


class OpenVino:
    """Converts the file when it opens it, and keeps K and V in 8 bits by itself. Has no server in this package."""

    name = "OpenVINO"
    variants = ((),)
    serve = None

    def long_variants(self, best):
        return self.variants

    def __init__(self, threads):
        self.python = ROOT / ".venv-peers" / "bin" / "python"
        self.threads = threads

    def bench(self, model, variant, tests):
        try:
            out = run([self.python, ROOT / "bench" / "peers" / "openvino_bench.py", model, "--threads", self.threads,
                       "--tests", ",".join(tests)])
        except RuntimeError as error:
            raise Refused(last_line(str(error))) from error
        return json.loads(out.splitlines()[-1])

    def describe(self, variant):
        return "its own"


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


ENGINES = {"kvasir": Kvasir, "llama.cpp": LlamaCpp, "openvino": OpenVino}
