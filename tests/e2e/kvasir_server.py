"""Starts the real binary on a free port and asks it things."""

import contextlib
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

import httpx
import openai
from prometheus_client.parser import text_string_to_metric_families

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BINARY = ROOT / "build" / "release" / "kvasir"
MODELS = {
    "smollm2": ROOT / "models" / "smollm2-135m-instruct-q4_1.gguf",
    "gemma": ROOT / "models" / "gemma-3-270m-q4_k_m.gguf",
    "qwen-0.5b": ROOT / "models" / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    "qwen-1.5b": ROOT / "models" / "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
}
START_TIMEOUT_S = 60
TIMEOUT_S = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A running server; `log()` is what it has printed so far."""

    def __init__(self, process, port, log_path):
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.log_path = log_path
        self.http = httpx.Client(base_url=self.url, timeout=TIMEOUT_S)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def openai(self, **kwargs):
        options = {"base_url": f"{self.url}/v1", "api_key": "none", "timeout": TIMEOUT_S, "max_retries": 0}
        return openai.OpenAI(**(options | kwargs))

    def post(self, path, body, **kwargs):
        return self.http.post(path, json=body, **kwargs)

    def complete(self, prompt, **fields):
        """Text of one greedy completion."""
        answer = self.post("/v1/completions", {"prompt": prompt, "temperature": 0, **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]["text"]

    def metrics(self):
        """Value by sample name; samples that differ only in labels are added up."""
        values = {}
        for family in text_string_to_metric_families(self.http.get("/metrics").text):
            for sample in family.samples:
                values[sample.name] = values.get(sample.name, 0) + sample.value
        return values

    def wait_for_metric(self, name, value, seconds):
        """Waits until the metric has that value; returns whether it got there in time."""
        return self.wait_for_metrics(lambda metrics: metrics.get(name) == value, seconds)

    def wait_for_metrics(self, right, seconds):
        """Waits until right(metrics) is true; returns whether it got there in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if right(self.metrics()):
                return True
            time.sleep(0.02)
        return False

    def is_idle(self, seconds=3.0):
        """Nothing runs, nothing waits, and no block is in use."""
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
        return all(self.wait_for_metric(name, 0, seconds) for name in names)

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)


def wait_until_up(server):
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise AssertionError(f"the server ended with status {server.process.returncode}:\n{server.log()}")
        with contextlib.suppress(httpx.TransportError):
            if server.http.get("/health").status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError(f"the server was not up after {START_TIMEOUT_S} s:\n{server.log()}")


@contextlib.contextmanager
def running(model="smollm2", *flags, wrapper=()):
    """A server for `model` (a name of MODELS, or a path), ended and checked for a clean end afterwards.

    `wrapper`: words before the command, of a program that becomes it (exec).
    """
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="kvasir-e2e-") as folder:
        log_path = pathlib.Path(folder) / "log.txt"
        command = [*wrapper, BINARY, "serve", MODELS.get(model, model), "--port", port, *flags]
        with open(log_path, "w") as log:
            process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
        server = Server(process, port, log_path)
        try:
            wait_until_up(server)
            yield server
            if process.poll() is None:
                server.terminate()
                status = process.wait(timeout=40)
                assert status == 0, f"exit status {status} after SIGTERM:\n{server.log()[-4000:]}"
        finally:
            server.http.close()
            if process.poll() is None:
                process.kill()
                process.wait()
