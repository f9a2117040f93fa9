"""/metrics by the names that routers and dashboards read."""

NAMES = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:num_preemptions_total",
    "vllm:request_success_total",
    "vllm:time_to_first_token_seconds_count",
    "vllm:inter_token_latency_seconds_count",
    "vllm:e2e_request_latency_seconds_count",
)


def test_names(server):
    server.complete("Hello", max_tokens=2)
    metrics = server.metrics()
    assert [name for name in NAMES if name not in metrics] == []
    response = server.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")


def test_counters_count_what_was_asked(server):
    before = server.metrics()
    answer = server.post("/v1/completions", {"prompt": "Hello there, my friend", "max_tokens": 9, "ignore_eos": True}).json()
    expected = before["vllm:generation_tokens_total"] + answer["usage"]["completion_tokens"]
    assert server.wait_for_metric("vllm:generation_tokens_total", expected, 1)
    after = server.metrics()

    def grown(name):
        return after[name] - before[name]

    assert answer["usage"]["completion_tokens"] == 9
    assert grown("vllm:prompt_tokens_total") == answer["usage"]["prompt_tokens"]
    assert grown("vllm:request_success_total") == 1
    assert grown("vllm:time_to_first_token_seconds_count") == 1
    assert grown("vllm:e2e_request_latency_seconds_count") == 1


def test_health_and_models(server):
    assert server.http.get("/health").status_code == 200
    models = server.http.get("/v1/models").json()
    assert models["object"] == "list"
    assert models["data"][0]["max_model_len"] == 8192
