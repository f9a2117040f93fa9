"""The official Python client against the real model."""

import concurrent.futures

import openai
import pytest

# SmolLM2 answers this with a clear lead at every token; with many others its first choices nearly tie.
QUESTION = [{"role": "user", "content": "What is the capital of Japan?"}]


def chat(client, messages=None, **fields):
    return client.chat.completions.create(**({"model": "any", "messages": messages or QUESTION, "temperature": 0,
                                              "max_tokens": 32} | fields))


def test_chat(client):
    answer = chat(client)
    choice = answer.choices[0]
    assert choice.message.content == "The capital of Japan is Tokyo."
    assert choice.message.role == "assistant"
    assert choice.finish_reason == "stop"
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 < usage.completion_tokens < 32 and usage.prompt_tokens > 10


def test_chat_stream_concatenates_to_the_whole_answer(client):
    whole = chat(client)
    text, reasons, usage = "", [], None
    for chunk in chat(client, stream=True, stream_options={"include_usage": True}):
        if chunk.usage:
            usage = chunk.usage
            assert chunk.choices == []
            continue
        text += chunk.choices[0].delta.content or ""
        reasons.append(chunk.choices[0].finish_reason)
    assert text == whole.choices[0].message.content
    assert reasons[-1] == "stop" and not any(reasons[:-1])
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_completion(client):
    answer = client.completions.create(model="any", prompt="1, 2, 3, 4, 5, 6,", max_tokens=8, temperature=0)
    assert answer.choices[0].text.startswith(" 7")
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 8


def test_completion_of_several_prompts_keeps_their_order(client):
    prompts = ["1, 2, 3, 4,", "The capital of France is", "def add(a, b):"]
    together = client.completions.create(model="any", prompt=prompts, max_tokens=8, temperature=0)
    assert [choice.index for choice in together.choices] == [0, 1, 2]
    for prompt, choice in zip(prompts, together.choices):
        alone = client.completions.create(model="any", prompt=prompt, max_tokens=8, temperature=0)
        assert choice.text == alone.choices[0].text


def test_32_at_once_say_what_each_says_alone(client):
    def ask(i):
        messages = [{"role": "user", "content": f"Write one sentence about the number {i}."}]
        return chat(client, messages, max_tokens=24).choices[0].message.content

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        together = list(pool.map(ask, range(32)))
    for i in (0, 7, 31):
        assert together[i] == ask(i)
    assert len(set(together)) > 16


def test_n_choices_differ_and_the_first_is_the_single_one(client):
    fields = {"temperature": 1.0, "seed": 7, "max_tokens": 16}
    three = chat(client, n=3, **fields)
    one = chat(client, n=1, **fields)
    texts = [choice.message.content for choice in three.choices]
    assert [choice.index for choice in three.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert texts[0] == one.choices[0].message.content


def test_seed_repeats_beside_strangers(client):
    fields = {"temperature": 1.0, "max_tokens": 24}
    alone = chat(client, seed=42, **fields).choices[0].message.content
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        strangers = [pool.submit(chat, client, **fields) for _ in range(7)]
        beside = pool.submit(chat, client, seed=42, **fields).result().choices[0].message.content
        random = {stranger.result().choices[0].message.content for stranger in strangers}
    assert beside == alone
    assert len(random) > 1, "without a seed every answer was the same"


def test_stop_string_inside_a_token_and_across_tokens(client):
    prompt = "A B C D E F G H I J K"
    whole = client.completions.create(model="any", prompt=prompt, max_tokens=12, temperature=0).choices[0].text
    stop = whole[3:6]
    for stream in (False, True):
        answer = client.completions.create(
            model="any", prompt=prompt, max_tokens=12, temperature=0, stop=[stop], stream=stream
        )
        if stream:
            chunks = list(answer)
            text = "".join(chunk.choices[0].text for chunk in chunks)
            reason = chunks[-1].choices[0].finish_reason
        else:
            text, reason = answer.choices[0].text, answer.choices[0].finish_reason
        assert text == whole[: whole.index(stop)]
        assert reason == "stop"


def test_logprobs_of_chat(client):
    answer = chat(client, logprobs=True, top_logprobs=3, max_tokens=6)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for token in content:
        best = token.top_logprobs
        assert len(best) == 3
        assert best[0].logprob >= best[1].logprob >= best[2].logprob
        assert token.logprob == best[0].logprob and token.token == best[0].token  # temperature 0
        assert token.logprob <= 0
        assert bytes(token.bytes).decode(errors="replace") == token.token
    assert b"".join(bytes(token.bytes) for token in content).decode() == answer.choices[0].message.content


def test_logprobs_do_not_depend_on_company(client):
    def ask(_):
        answer = chat(client, logprobs=True, top_logprobs=5, max_tokens=8)
        return [(t.token, t.logprob, [p.logprob for p in t.top_logprobs]) for t in answer.choices[0].logprobs.content]

    alone = ask(0)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(result == alone for result in pool.map(ask, range(16)))


def test_logprobs_of_completion(client):
    answer = client.completions.create(model="any", prompt="something", logprobs=2, max_tokens=4, temperature=0)
    logprobs = answer.choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 4
    assert "".join(logprobs.tokens) == answer.choices[0].text
    for chosen, best in zip(logprobs.token_logprobs, logprobs.top_logprobs):
        assert chosen == max(best.values())


def test_second_turn_is_found_in_the_cache(client):
    story = "Once upon a time in the north there lived a giant. " * 12
    messages = [{"role": "user", "content": story + "What lived in the north?"}]
    first = chat(client, messages)
    messages += [{"role": "assistant", "content": first.choices[0].message.content},
                 {"role": "user", "content": "Say it again."}]
    second = chat(client, messages)
    assert second.usage.prompt_tokens > first.usage.prompt_tokens
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens // 2


def test_same_answer_after_a_cache_hit(client):
    prompt = "The lighthouse keeper wrote in his book every night, and on the last night of the year he wrote: " * 4
    answers = [client.completions.create(model="any", prompt=prompt, max_tokens=24, temperature=0) for _ in range(3)]
    assert len({answer.choices[0].text for answer in answers}) == 1
    assert len({answer.usage.prompt_tokens for answer in answers}) == 1
    assert answers[2].usage.prompt_tokens_details.cached_tokens > 0


def test_best_of_gives_those_of_n_that_are_most_likely(client):
    fields = {"model": "any", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 1, "seed": 5, "logprobs": 1}
    drawn = client.completions.create(n=4, **fields)
    best_first = sorted(drawn.choices, key=lambda c: -sum(c.logprobs.token_logprobs) / len(c.logprobs.tokens))
    best = client.completions.create(n=2, best_of=4, **fields)
    assert [choice.text for choice in best.choices] == [choice.text for choice in best_first[:2]]
    assert [choice.index for choice in best.choices] == [0, 1]
    assert best.usage.completion_tokens == drawn.usage.completion_tokens


def test_text_parts_and_null_content_are_what_they_say(client):
    parts = [{"type": "text", "text": "What is the capital"}, {"type": "text", "text": "of Japan?"}]
    joined = [{"role": "user", "content": "What is the capital\nof Japan?"}]  # a line each, as vLLM joins them
    from_parts = chat(client, [{"role": "user", "content": parts}])
    assert from_parts.choices[0].message.content == chat(client, joined).choices[0].message.content
    assert from_parts.usage.prompt_tokens == chat(client, joined).usage.prompt_tokens
    history = QUESTION + [{"role": "assistant", "content": None}, {"role": "user", "content": "Say it again."}]
    empty = QUESTION + [{"role": "assistant", "content": ""}, {"role": "user", "content": "Say it again."}]
    assert chat(client, history).choices[0].message.content == chat(client, empty).choices[0].message.content


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
def test_max_tokens(client, limit):
    answer = client.chat.completions.create(model="any", messages=QUESTION, temperature=0, **{limit: 3})
    assert answer.usage.completion_tokens == 3
    assert answer.choices[0].finish_reason == "length"


def test_ignore_eos_and_min_tokens(client):
    eager = chat(client)
    ignoring = chat(client, max_tokens=64, extra_body={"ignore_eos": True})
    assert ignoring.usage.completion_tokens == 64
    at_least = eager.usage.completion_tokens + 8
    waiting = chat(client, max_tokens=64, extra_body={"min_tokens": at_least})
    assert waiting.usage.completion_tokens >= at_least


def test_logit_bias(server, client):
    def first_word(**fields):
        return client.completions.create(model="any", prompt="1, 2, 3,", max_tokens=2, temperature=0, **fields)

    favourite = first_word().choices[0].text
    ids = server.post("/tokenize", {"prompt": favourite, "add_special_tokens": False}).json()["tokens"]
    banned = first_word(logit_bias={str(i): -100 for i in ids}).choices[0].text
    assert banned != favourite
    forced = first_word(logit_bias={str(ids[-1]): 100}).choices[0].text
    last = server.post("/detokenize", {"tokens": [ids[-1]]}).json()["prompt"]
    assert forced == last * 2


def test_models(client):
    models = client.models.list().data
    assert len(models) == 1
    assert models[0].object == "model"
    assert client.models.retrieve(models[0].id).id == models[0].id


def test_bad_fields_are_named(client):
    for field, value in (("temperature", "hot"), ("temperature", -1), ("top_p", 2), ("n", 0), ("max_tokens", -1),
                         ("presence_penalty", 9), ("logit_bias", {"99999999": 1})):
        with pytest.raises(openai.BadRequestError) as caught:
            chat(client, **{field: value})
        assert caught.value.body["param"] == field
        assert field in caught.value.body["message"]


def test_too_long_a_prompt_says_both_numbers(client):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, [{"role": "user", "content": "word " * 20000}])
    assert caught.value.code == "context_length_exceeded"
    assert "maximum context length is 8192 tokens" in caught.value.body["message"]
