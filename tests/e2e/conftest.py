import pytest

import kvasir_server


@pytest.fixture(scope="session")
def server():
    """One SmolLM2 server for every test that leaves it as it was."""
    with kvasir_server.running("smollm2") as running:
        yield running
        assert running.process.poll() is None, f"the server died:\n{running.log()[-4000:]}"
        assert running.is_idle(), "requests or blocks were left behind"


@pytest.fixture
def client(server):
    return server.openai()
