"""Each of the real models answers a question sensibly, greedily and streamed."""

import pytest

import kvasir_server

QUESTIONS = (
    ("smollm2", "What is the capital of Japan?", "Tokyo"),
    ("qwen-0.5b", "What is the capital of France?", "Paris"),
    ("qwen-0.5b", "Write a Python function that adds two numbers. Only code.", "def "),
    ("qwen-1.5b", "What is the capital of France?", "Paris"),
    ("qwen-1.5b", "Write a Python function that adds two numbers. Only code.", "return a + b"),
)


@pytest.fixture(scope="module")
def servers():
    """One server at a time, kept while the next question is for the same model."""
    current = {}

    def get(name):
        if not kvasir_server.MODELS[name].is_file():
            pytest.skip(f"{name} is not in models/")
        if name not in current:
            while current:
                current.popitem()[1][0].__exit__(None, None, None)
            context = kvasir_server.running(name)
            current[name] = (context, context.__enter__())
        return current[name][1]

    yield get
    while current:
        current.popitem()[1][0].__exit__(None, None, None)


@pytest.mark.parametrize("name, question, expected", QUESTIONS)
def test_chat(servers, name, question, expected):
    client = servers(name).openai()
    stream = client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": question}], temperature=0, max_tokens=64, stream=True
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert expected in text


def test_gemma_completes(servers):
    """This Gemma is a base model: it continues a text, and its file holds no chat template."""
    server = servers("gemma")
    text = server.complete("The days of the week are Monday, Tuesday, Wednesday,", max_tokens=12)
    assert "Thursday" in text and "Friday" in text


def test_qwen_renders_tools(servers):
    """The tools reach the prompt by the model's own template."""
    server = servers("qwen-0.5b")
    tool = {"type": "function", "function": {"name": "get_tide", "description": "Height of the tide",
                                             "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}}
    body = {"messages": [{"role": "user", "content": "How high is the water?"}], "max_tokens": 1, "temperature": 0}
    plain = server.post("/v1/chat/completions", body).json()["usage"]["prompt_tokens"]
    tools = server.post("/v1/chat/completions", body | {"tools": [tool]}).json()["usage"]["prompt_tokens"]
    assert tools > plain + 50
