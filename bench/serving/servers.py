"""The servers a load can meet. Each is started by `start(model, slots, context, log)` on a free port, a context manager
that gives a Running once it answers, and ends it afterwards; `settings` says in words how it was started.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PEERS = ROOT / ".venv-peers"
START_TIMEOUT_S = 300
SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")


@dataclasses.dataclass
class Running:
    url: str
    process: subprocess.Popen
    log: pathlib.Path

    def resident_bytes(self):
        """Of the server and what it started."""
        return sum(resident(pid) for pid in descendants(self.process.pid))

    def cpu_seconds(self):
        return sum(cpu(pid) for pid in descendants(self.process.pid))

    def metrics(self):
        """Value by name of /metrics, and by name{labels}; samples of one name are added up."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            return parse_metrics(answer.read().decode())


def parse_metrics(text):
    values = {}
    for line in text.splitlines():
        match = SAMPLE.match(line)
        if not match:
            continue
        name, labels, value = match.group(1), match.group(2), float(match.group(3))
        values[name] = values.get(name, 0.0) + value
        for label in re.findall(r'(\w+="[^"]*")', labels or ""):
            values[f"{name}{{{label}}}"] = values.get(f"{name}{{{label}}}", 0.0) + value
    return values


def descendants(pid):
    found, unread = [], [pid]
    while unread:
        one = unread.pop()
        found.append(one)
        with contextlib.suppress(OSError):
            for task in pathlib.Path(f"/proc/{one}/task").iterdir():
                unread += [int(child) for child in (task / "children").read_text().split()]
    return found


def resident(pid):
    with contextlib.suppress(OSError, IndexError):
        return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def cpu(pid):
    with contextlib.suppress(OSError, IndexError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def machine_cpu_seconds():
    """What all processes together have used since the machine started, with what other virtual machines took."""
    user, nice, system, _, _, interrupts, soft, stolen = map(int, pathlib.Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def started(command, log, environment=None):
    """Runs `command` with a port until the block ends, which begins when /health answers 200."""
    port = free_port()
    command = [*command, "--port", port]
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w") as out:
        process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=out, cwd=ROOT,
                                   env=os.environ | (environment or {}), start_new_session=True)
    running = Running(f"http://127.0.0.1:{port}", process, log)
    try:
        wait_until_up(running)
        yield running
    finally:
        end(process)


def wait_until_up(running):
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if running.process.poll() is not None:
            raise RuntimeError(f"the server ended with status {running.process.returncode}:\n{tail(running.log)}")
        with contextlib.suppress(urllib.error.URLError, OSError):
            healthy = urllib.request.urlopen(f"{running.url}/health", timeout=5).status == 200
            if healthy and running.process.poll() is None:
                return
        time.sleep(0.2)
    raise RuntimeError(f"the server was not up after {START_TIMEOUT_S} s:\n{tail(running.log)}")


def tail(log):
    return log.read_text(errors="replace")[-2000:]


def end(process):
    """SIGTERM to the server; what is left of its session is killed after 30 s."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Kvasir:
    name = "Kvasir"

    def __init__(self, options):
        self.program, self.threads, self.flags = options.kvasir, options.threads, tuple(options.kvasir_flags)

    def start(self, model, slots, context, log, more=()):
        return started([self.program, "serve", model.file, "--threads", self.threads, *self.flags, *more], log)

    def settings(self):
        return " ".join(map(str, self.flags)) or "its defaults"


class LlamaServer:
    name = "llama-server"

    def __init__(self, options):
        self.program = PEERS / "llama.cpp" / "build" / "bin" / "llama-server"
        self.threads = options.threads
        self.attention, self.repack = options.llama
        self.flags = tuple(options.llama_flags)

    def start(self, model, slots, context, log):
        command = [self.program, "-m", model.file, "-t", self.threads, "-np", slots, "-c", slots * context,
                   "-fa", self.attention, *self.flags]
        return started(command + ([] if self.repack == "on" else ["-nr"]), log)

    def settings(self):
        more = f", {' '.join(self.flags)}" if self.flags else ""
        return f"a slot per client, flash attention {self.attention}, repacking {self.repack}{more}"


def bf16_in_hardware():
    """Whether this processor multiplies bfloat16; elsewhere vLLM is four times as fast in float32."""
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        flags = cpuinfo.read()
    return "avx512_bf16" in flags or "amx_bf16" in flags


class Vllm:
    """Its CPU build reads no GGUF, so it runs the same weights dequantised to bf16 (dequantise.py)."""

    name = "vLLM"

    def __init__(self, options):
        self.folder = PEERS / "vllm"
        self.threads = options.threads
        self.flags = tuple(options.vllm_flags)
        self.dtype = "bfloat16" if bf16_in_hardware() else "float32"

    def start(self, model, slots, context, log):
        environment = {"VLLM_CPU_KVCACHE_SPACE": "4", "VLLM_CPU_NUM_OF_RESERVED_CPU": "0", "HF_HUB_OFFLINE": "1",
                       "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        command = [self.folder / "bin" / "vllm", "serve", self.folder / "models" / model.name, "--host",
                   "127.0.0.1", "--served-model-name", "any", "--dtype", self.dtype, "--max-model-len",
                   max(2048, context), "--max-num-seqs", max(slots, 16), *self.flags]
        return started(command, log, environment)

    def settings(self):
        return "".join([f"bf16 weights, computes in {self.dtype}, 4 GiB of KV cache, no reserved core",
                        *(f", {flag}" for flag in self.flags)])


SERVERS = {"kvasir": Kvasir, "llama-server": LlamaServer, "vllm": Vllm}
