#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "server/api_fixture.h"

namespace kvasir::testing {
namespace {

// --- tokens and metrics ---

TEST_F(ApiServerTest, TokenizesInBothDialects) {
  start();
  tokenizer_.set_add_bos(true);
  const auto vllm = parsed(post("/tokenize", R"({"prompt":"ab","return_token_strs":true})").body);
  EXPECT_EQ(json::serialize(vllm.at("tokens")), "[258,97,98]");
  EXPECT_EQ(vllm.at("count").as_int64(), 3);
  EXPECT_EQ(vllm.at("max_model_len").as_int64(), 1000);
  EXPECT_EQ(vllm.at("token_strs").at(1).as_string(), "a");
  const auto plain = parsed(
      post("/v1/tokenize", R"({"prompt":"<s>b","add_special_tokens":false,"parse_special":false})").body);
  EXPECT_EQ(plain.at("count").as_int64(), 4);
  const auto llama = parsed(post("/tokenize", R"({"content":"a\u00e9","with_pieces":true})").body);
  EXPECT_EQ(json::serialize(llama.at("tokens").at(0)), R"({"id":97,"piece":"a"})");
  EXPECT_EQ(json::serialize(llama.at("tokens").at(1)), R"({"id":195,"piece":[195]})");
  const auto messages = parsed(post("/tokenize", std::string("{") + kHi + "}").body);
  EXPECT_EQ(messages.at("tokens").at(1).as_int64(), ByteTokenizer::kStart);
  const auto text = parsed(post("/detokenize", R"({"tokens":[97,98]})").body);
  EXPECT_EQ(text.at("prompt").as_string(), "ab");
  EXPECT_EQ(text.at("content").as_string(), "ab");
  for (const char* bad : {"{}", R"({"prompt":3})", R"({"prompt":"a","add_special_tokens":1})"}) {
    expect_error(post("/tokenize", bad), 400, "invalid_request_error");
  }
  for (const char* bad : {"{}", R"({"tokens":[259]})", R"({"tokens":[-1]})", R"({"tokens":"a"})"}) {
    expect_error(post("/detokenize", bad), 400, "invalid_request_error");
  }
}

// Name, labels and value of every sample; fails on a line that is not the text format 0.0.4.
std::map<std::string, double> samples_of(const std::string& text) {
  std::map<std::string, double> samples;
  std::map<std::string, std::string> types;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ")) continue;
    if (line.starts_with("# TYPE ")) {
      const size_t space = line.find(' ', 7);
      EXPECT_TRUE(types.emplace(line.substr(7, space - 7), line.substr(space + 1)).second) << line;
      continue;
    }
    const size_t space = line.rfind(' ');
    EXPECT_NE(space, std::string::npos) << line;
    const std::string name = line.substr(0, line.find_first_of("{ "));
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:"),
              std::string::npos)
        << line;
    EXPECT_TRUE(samples.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second)
        << "twice: " << line;
  }
  return samples;
}

TEST_F(ApiServerTest, MetricsAreWellFormed) {
  start();
  chat("\"no_such_field\":1");
  const auto answer = get("/metrics");
  EXPECT_EQ(answer.header("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  const auto samples = samples_of(answer.body);
  EXPECT_THAT(answer.body, HasSubstr("cache_dtype=\"float16\""));
  const std::string labels = "{model_name=\"fake\",engine=\"0\"";
  EXPECT_EQ(samples.at("vllm:num_requests_running" + labels + "}"), 0);
  EXPECT_EQ(samples.at("kvasir_queue_sequences" + labels + ",priority=\"below_0\"}"), 1);
  EXPECT_EQ(samples.at("kvasir_queue_sequences" + labels + ",priority=\"above_0\"}"), 3);
  EXPECT_EQ(samples.at("kvasir_requests_refused_total" + labels + ",reason=\"user\"}"), 4);
  EXPECT_EQ(samples.at("vllm:kv_cache_usage_perc" + labels + "}"), 0.25);
  EXPECT_EQ(samples.at("vllm:prefix_cache_hits_total" + labels + "}"), 10);
  EXPECT_EQ(samples.at("vllm:time_to_first_token_seconds_bucket" + labels + ",le=\"1\"}"), 5);
  EXPECT_EQ(samples.at("vllm:time_to_first_token_seconds_bucket" + labels + ",le=\"+Inf\"}"), 6);
  EXPECT_EQ(samples.at("vllm:time_to_first_token_seconds_count" + labels + "}"), 6);
  EXPECT_EQ(samples.at("kvasir_engine_stalled" + labels + "}"), 0);
  EXPECT_EQ(samples.at("kvasir_engine_stalls_total" + labels + ",kind=\"seen\"}"), 2);
  EXPECT_EQ(samples.at("kvasir_engine_stalls_total" + labels + ",kind=\"replanned\"}"), 3);
  EXPECT_EQ(samples.at("kvasir_kv_persist_restored_tokens" + labels + "}"), 640);
  EXPECT_EQ(samples.at("kvasir_kv_persist_saved_bytes" + labels + "}"), 4096);
  EXPECT_EQ(samples.at("kvasir_predicted_steps_total" + labels + "}"), 4);
  EXPECT_EQ(samples.at("kvasir_predicted_step_seconds_total" + labels + "}"), 1.5);
  EXPECT_EQ(samples.at("kvasir_predicted_step_measured_seconds_total" + labels + "}"), 2);
  EXPECT_EQ(samples.at("kvasir_step_prediction_error_ratio_bucket" + labels + ",le=\"0.1\"}"), 3);
  EXPECT_EQ(samples.at("kvasir_step_prediction_recent_error_ratio" + labels + ",quantile=\"0.9\"}"), 0.25);
  EXPECT_EQ(samples.at("kvasir_step_prediction_recent_bias_ratio" + labels + "}"), -0.125);
  EXPECT_EQ(samples.at("kvasir_step_slowdown_ratio" + labels + ",part=\"stream\"}"), 2);
  EXPECT_EQ(samples.at("kvasir_step_slowdown_ratio" + labels + ",part=\"rest\"}"), 0.5);
  EXPECT_EQ(samples.at("kvasir_unknown_request_fields_total"), 1);
  EXPECT_EQ(
      samples.at("http_requests_total{handler=\"/v1/chat/completions\",method=\"POST\",status=\"2xx\"}"), 1);
  EXPECT_GT(samples.at("process_resident_memory_bytes"), 0);
}

TEST_F(ApiServerTest, MetricsSayWhatGuessesDid) {
  start();
  const auto samples = samples_of(get("/metrics").body);
  const std::string all = "{model_name=\"fake\",engine=\"0\"";
  const std::string ngram = all + ",drafter=\"ngram\"";
  EXPECT_EQ(samples.at("vllm:spec_decode_num_drafts_total" + ngram + "}"), 5);
  EXPECT_EQ(samples.at("vllm:spec_decode_num_draft_tokens_total" + ngram + "}"), 20);
  EXPECT_EQ(samples.at("vllm:spec_decode_num_accepted_tokens_total" + ngram + "}"), 9);
  for (const auto& [position, accepted] : {std::pair{"0", 4}, {"1", 3}, {"2", 2}, {"3", 0}, {"15", 0}})
    EXPECT_EQ(samples.at("vllm:spec_decode_num_accepted_tokens_per_pos_total" + ngram + ",position=\"" +
                         position + "\"}"),
              accepted);
  EXPECT_EQ(samples.at("kvasir_spec_without_draft_total" + all + ",reason=\"no_gain\"}"), 22);
  EXPECT_EQ(samples.at("kvasir_spec_drafter_off_total" + ngram + ",reason=\"prompts\"}"), 13);
  EXPECT_EQ(samples.at("kvasir_spec_drafter_off_total" + ngram + ",reason=\"outbid\"}"), 15);
  EXPECT_EQ(samples.at("kvasir_spec_predicted_gain_ratio" + all + "}"), 1.25);
  EXPECT_EQ(samples.at("kvasir_spec_saved_seconds" + all + "}"), -0.5);
}

TEST_F(ApiServerTest, AStalledEngineIsIllWithAReason) {
  start();
  EXPECT_EQ(get("/health").status, 200);
  engine_.stalled = true;
  const auto answer = get("/health");
  EXPECT_EQ(answer.status, 503);
  const auto body = parsed(answer.body);
  EXPECT_EQ(body.at("status").as_string(), "stalled");
  EXPECT_THAT(std::string(body.at("error").at("message").as_string()), HasSubstr("99 s"));
  EXPECT_EQ(get("/livez").status, 200);
  EXPECT_THAT(get("/metrics").body, HasSubstr("kvasir_engine_stalled{model_name=\"fake\",engine=\"0\"} 1"));
  engine_.stalled = false;
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(ApiServerTest, CacheConfigSaysHowKvIsStored) {
  engine_.limits.kv_type = KvType::kInt8;
  start();
  EXPECT_THAT(get("/metrics").body, HasSubstr("cache_dtype=\"int8_per_token_head\""));
}

}  // namespace
}  // namespace kvasir::testing
