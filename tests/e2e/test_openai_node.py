"""The official client for Node; node/client.mjs holds the checks, one line of output each."""

import shutil
import subprocess

import pytest

import kvasir_server

FOLDER = kvasir_server.ROOT / "tests" / "e2e" / "node"


@pytest.mark.parametrize("check", ["chat", "stream", "completion", "parallel", "choices", "abort", "error"])
def test_node(server, check):
    assert shutil.which("node"), "tools/setup.sh --node installs Node.js"
    assert (FOLDER / "node_modules" / "openai").is_dir(), "tools/setup.sh --node installs the client"
    command = ["node", "client.mjs", f"{server.url}/v1", check]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == f"{check} ok"
    assert server.is_idle()
