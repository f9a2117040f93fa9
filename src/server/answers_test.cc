#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api_fixture.h"

namespace kvasir::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

// --- whole answers ---

TEST_F(ApiServerTest, Chat) {
  start();
  const json::object answer = chat();
  EXPECT_EQ(answer.at("object").as_string(), "chat.completion");
  EXPECT_TRUE(answer.at("id").as_string().starts_with("chatcmpl-"));
  EXPECT_EQ(answer.at("model").as_string(), "fake");
  const json::object& choice = choice_of(answer);
  EXPECT_EQ(choice.at("message").at("role").as_string(), "assistant");
  EXPECT_EQ(choice.at("message").at("content").as_string(), "Hello there!");
  EXPECT_EQ(choice.at("finish_reason").as_string(), "stop");
  EXPECT_TRUE(choice.at("logprobs").is_null());
  const json::value& usage = answer.at("usage");
  EXPECT_EQ(usage.at("completion_tokens").as_int64(), 13);
  EXPECT_EQ(usage.at("total_tokens").as_int64(), usage.at("prompt_tokens").as_int64() + 13);
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens").as_int64(), 3);
}

TEST_F(ApiServerTest, CompletionOfSeveralPromptsTimesN) {
  start();
  engine_.answer = [](const Request& r, uint32_t c) {
    return std::string(1, static_cast<char>(r.prompt[0])) + std::to_string(c);
  };
  const auto answer = post("/completions", R"({"prompt":["x","y"],"n":2})");
  const json::value body = parsed(answer.body);
  EXPECT_EQ(body.at("object").as_string(), "text_completion");
  std::vector<std::string> texts;
  for (const json::value& choice : body.at("choices").as_array()) {
    EXPECT_EQ(choice.at("index").as_int64(), static_cast<int64_t>(texts.size()));
    texts.emplace_back(choice.at("text").as_string());
  }
  EXPECT_THAT(texts, ElementsAre("x0", "x1", "y0", "y1"));
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(), 2);
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), 12);
}

// The fake engine's tokens have the log-probability -(byte % 5) / 4: "d" 0, "e" -0.25, the end -0.5. So the
// means are -0.5, -0.19, -0.25 and -0.1, while the second has the lowest sum.
TEST_F(ApiServerTest, BestOfGivesTheBestByMeanLogprob) {
  start();
  engine_.answer = [](const Request& r, uint32_t c) {
    static const std::vector<std::string> kAnswers = {"", "dde", "d", "dddd"};
    return kAnswers[(c + r.prompt[0]) % 4];
  };
  const auto answer = post("/v1/completions", R"({"prompt":["x","y"],"n":2,"best_of":4})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json::value body = parsed(answer.body);
  std::vector<std::string> texts;
  for (const json::value& choice : body.at("choices").as_array()) {
    EXPECT_EQ(choice.at("index").as_int64(), static_cast<int64_t>(texts.size()));
    EXPECT_TRUE(choice.at("logprobs").is_null());
    texts.emplace_back(choice.at("text").as_string());
  }
  EXPECT_THAT(texts, ElementsAre("dddd", "dde", "dddd", "dde"));
  EXPECT_EQ(engine_.last_request.n, 4u);
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), 2 * (1 + 4 + 2 + 5));
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(), 2);
}

TEST_F(ApiServerTest, BestOfOfAChat) {
  start();
  engine_.answer = [](const Request&, uint32_t c) { return std::string(c == 2 ? "d" : "c"); };
  const json::object answer = chat(R"("best_of":3)");
  EXPECT_EQ(answer.at("choices").as_array().size(), 1u);
  EXPECT_EQ(choice_of(answer).at("message").at("content").as_string(), "d");
  EXPECT_TRUE(choice_of(answer).at("logprobs").is_null());
  EXPECT_EQ(engine_.last_request.n, 3u);
}

TEST_F(ApiServerTest, BestOfKeepsTheLogprobsThatWereAskedFor) {
  start();
  engine_.answer = [](const Request&, uint32_t c) { return std::string(c == 1 ? "d" : "c"); };
  const json::object answer = complete(R"("best_of":3,"logprobs":1)");
  EXPECT_EQ(choice_of(answer).at("text").as_string(), "d");
  EXPECT_EQ(choice_of(answer).at("logprobs").at("tokens").as_array()[0].as_string(), "d");
}

TEST_F(ApiServerTest, SeedsAreFreshAndReturned) {
  start();
  EXPECT_EQ(chat("\"seed\":-5").at("seed").as_int64(), -5);
  EXPECT_EQ(engine_.last_request.sampling.seed, static_cast<uint64_t>(-5));
  const int64_t first = chat().at("seed").as_int64(), second = chat().at("seed").as_int64();
  EXPECT_NE(first, second);
  EXPECT_EQ(engine_.last_request.sampling.seed, static_cast<uint64_t>(second));
}

TEST_F(ApiServerTest, StopReasonSaysWhatStopped) {
  start();
  const json::object answer = chat("\"stop\":[\"zz\",\"lo t\"]");
  EXPECT_EQ(choice_of(answer).at("message").at("content").as_string(), "Hel");
  EXPECT_EQ(choice_of(answer).at("stop_reason").as_string(), "lo t");
  const json::object cut = chat("\"max_tokens\":4");
  EXPECT_EQ(choice_of(cut).at("finish_reason").as_string(), "length");
}

TEST_F(ApiServerTest, LogprobsOfChat) {
  start();
  const json::object answer = chat("\"logprobs\":true,\"top_logprobs\":2,\"max_tokens\":3");
  const json::array& content = choice_of(answer).at("logprobs").at("content").as_array();
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0].at("token").as_string(), "H");
  EXPECT_THAT(content[0].at("bytes").as_array(), ElementsAre(72));
  EXPECT_EQ(content[0].at("top_logprobs").as_array().size(), 2u);
  EXPECT_EQ(content[0].at("logprob"), content[0].at("top_logprobs").at(0).at("logprob"));
}

TEST_F(ApiServerTest, EchoWithLogprobsIsTheLegacyObject) {
  start();
  const json::object answer = complete("\"echo\":true,\"logprobs\":1,\"max_tokens\":1,\"temperature\":0");
  const json::object& choice = choice_of(answer);
  EXPECT_EQ(choice.at("text").as_string(), "abH");
  const json::object& logprobs = choice.at("logprobs").as_object();
  for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    EXPECT_EQ(logprobs.at(key).as_array().size(), 3u) << key;
  }
  EXPECT_EQ(json::serialize(logprobs.at("tokens")), R"(["a","b","H"])");
  EXPECT_EQ(json::serialize(logprobs.at("text_offset")), "[0,1,2]");
  EXPECT_TRUE(logprobs.at("token_logprobs").at(0).is_null());
  EXPECT_TRUE(logprobs.at("top_logprobs").at(0).is_null());
  EXPECT_EQ(logprobs.at("token_logprobs").at(1), logprobs.at("top_logprobs").at(1).at("b"));
}

TEST_F(ApiServerTest, EchoOfNothingMore) {
  start();
  const json::object answer = complete("\"echo\":true,\"max_tokens\":0,\"logprobs\":0");
  EXPECT_EQ(choice_of(answer).at("text").as_string(), "ab");
  EXPECT_EQ(choice_of(answer).at("finish_reason").as_string(), "length");
  EXPECT_EQ(choice_of(answer).at("logprobs").at("tokens").as_array().size(), 2u);
  EXPECT_EQ(answer.at("usage").at("completion_tokens").as_int64(), 0);
}

TEST_F(ApiServerTest, EchoOfNothingMoreNeedsNoRoomBehindThePrompt) {
  start();
  const auto echo = [&](size_t tokens, const std::string& more) {
    return post("/v1/completions", "{\"prompt\":\"" + std::string(tokens, 'a') + "\"," + more + "}");
  };
  for (const char* more : {"\"echo\":true,\"max_tokens\":0,\"logprobs\":0",
                           "\"echo\":true,\"max_tokens\":0,\"n\":2,\"stream\":true"})
    EXPECT_EQ(echo(1000, more).status, 200) << more;
  expect_error(echo(1001, "\"echo\":true,\"max_tokens\":0"), 400, "invalid_request_error");
  expect_error(echo(1000, "\"echo\":true,\"max_tokens\":1"), 400, "invalid_request_error");
}

TEST_F(ApiServerTest, PromptLogprobsAndTokenIds) {
  start();
  const json::object answer = complete("\"prompt_logprobs\":1,\"return_token_ids\":true,\"max_tokens\":2");
  const json::object& choice = choice_of(answer);
  EXPECT_EQ(json::serialize(choice.at("prompt_token_ids")), "[97,98]");
  EXPECT_EQ(json::serialize(choice.at("token_ids")), "[72,101]");
  EXPECT_TRUE(choice.at("prompt_logprobs").at(0).is_null());
  EXPECT_EQ(choice.at("prompt_logprobs").at(1).at("98").at("decoded_token").as_string(), "b");
  EXPECT_EQ(choice.at("prompt_logprobs").at(1).at("98").at("rank").as_int64(), 1);
}

TEST_F(ApiServerTest, ToolCallsOfAWholeAnswer) {
  engine_.answer = [](const Request&, uint32_t) {
    return "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  };
  start();
  const json::object answer = chat(R"("tools":[{"type":"function","function":{"name":"f"}}])");
  const json::object& choice = choice_of(answer);
  EXPECT_EQ(choice.at("finish_reason").as_string(), "tool_calls");
  EXPECT_TRUE(choice.at("message").at("content").is_null());
  const json::value& call = choice.at("message").at("tool_calls").at(0);
  EXPECT_TRUE(call.at("id").as_string().starts_with("call_"));
  EXPECT_EQ(call.at("function").at("arguments").as_string(), "{\"a\":1}");
  EXPECT_THAT(std::string(choice_of(chat()).at("message").at("content").as_string()),
              HasSubstr("<tool_call>"));
}

// The answer has 13 tokens; of five drafts with 20 guesses nine came true.
TEST_F(ApiServerTest, UsageSaysWhatGuessesDid) {
  engine_.drafting = {
      .steps = 4, .drafts = 5, .drafted = 20, .accepted = 9, .accepted_at = {4, 3, 2}, .saved_seconds = 0.25};
  start();
  const auto check = [](const json::value& usage, int answers) {
    const json::value& details = usage.at("completion_tokens_details");
    EXPECT_EQ(details.at("accepted_prediction_tokens").as_int64(), answers * 9);
    EXPECT_EQ(details.at("rejected_prediction_tokens").as_int64(), answers * 11);
    const json::value& said = usage.at("speculation");
    EXPECT_EQ(said.at("drafts").as_int64(), answers * 5);
    EXPECT_DOUBLE_EQ(said.at("mean_acceptance_length").to_number<double>(), 1 + 9.0 / 5);
    EXPECT_DOUBLE_EQ(said.at("tokens_per_step").to_number<double>(), 13.0 / 4);
    EXPECT_DOUBLE_EQ(said.at("saved_ms").to_number<double>(), answers * 250.0);
    const json::array& places = said.at("accepted_per_position").as_array();
    EXPECT_THAT(places, ElementsAre(answers * 4, answers * 3, answers * 2));
  };
  check(chat().at("usage"), 1);
  check(chat("\"n\":2").at("usage"), 2);
  check(stream("/v1/chat/completions", std::string(kHi) + R"(,"stream_options":{"include_usage":true})")
            .back()
            .at("usage"),
        1);
  const json::object timed = chat("\"timings_per_token\":true");
  EXPECT_EQ(timed.at("timings").at("draft_n").as_int64(), 20);
  EXPECT_EQ(timed.at("timings").at("draft_n_accepted").as_int64(), 9);
  engine_.drafting = {};
  EXPECT_FALSE(chat().at("usage").as_object().contains("speculation"));
}

TEST_F(ApiServerTest, TimingsOnRequest) {
  start();
  EXPECT_TRUE(chat("\"timings_per_token\":true").contains("timings"));
  EXPECT_FALSE(chat().contains("timings"));
}

// --- streams ---

TEST_F(ApiServerTest, StreamedChatFollowsTheRules) {
  start();
  const auto events = stream("/v1/chat/completions", kHi);
  ASSERT_GT(events.size(), 2u);
  for (const json::value& event : events) {
    EXPECT_EQ(event.at("object").as_string(), "chat.completion.chunk");
    EXPECT_EQ(event.at("id"), events[0].at("id"));
    EXPECT_EQ(event.at("created"), events[0].at("created"));
    EXPECT_FALSE(event.as_object().contains("usage"));
    EXPECT_EQ(event.at("choices").as_array().size(), 1u);
    EXPECT_EQ(choice_of(event).at("delta").as_object().contains("role"), &event == &events[0]);
    EXPECT_EQ(choice_of(event).at("finish_reason").is_null(), &event != &events.back());
  }
  EXPECT_EQ(choice_of(events[0]).at("delta").at("content").as_string(), "H");
  EXPECT_EQ(choice_of(events.back()).at("finish_reason").as_string(), "stop");
  EXPECT_EQ(text_of(events), "Hello there!");
}

TEST_F(ApiServerTest, StreamedCompletionEqualsTheWhole) {
  engine_.answer = [](const Request&, uint32_t) {
    return "caf\xC3\xA9 \xF0\x9F\x98\x80 \xE6\xAD\xAA ??stop";
  };
  start();
  const std::string fields =
      "\"prompt\":\"ab\",\"max_tokens\":100,\"stop\":[\"?st\"],\"echo\":true,\"logprobs\":1";
  const auto events = stream("/v1/completions", fields);
  const auto whole = parsed(post("/v1/completions", "{" + fields + "}").body);
  EXPECT_EQ(text_of(events), "abcaf\xC3\xA9 \xF0\x9F\x98\x80 \xE6\xAD\xAA ?");
  EXPECT_EQ(text_of(events), choice_of(whole).at("text").as_string());
  json::array tokens, offsets;
  for (const json::value& event : events) {
    if (choice_of(event).at("logprobs").is_null()) continue;
    for (const json::value& t : choice_of(event).at("logprobs").at("tokens").as_array()) tokens.push_back(t);
    for (const json::value& t : choice_of(event).at("logprobs").at("text_offset").as_array())
      offsets.push_back(t);
  }
  EXPECT_EQ(json::value(tokens), choice_of(whole).at("logprobs").at("tokens"));
  EXPECT_EQ(json::value(offsets), choice_of(whole).at("logprobs").at("text_offset"));
}

TEST_F(ApiServerTest, UsageComesLastAndOnlyWhenAskedFor) {
  start();
  auto events =
      stream("/v1/chat/completions", std::string(kHi) + R"(,"stream_options":{"include_usage":true})");
  EXPECT_TRUE(events.back().at("choices").as_array().empty());
  EXPECT_EQ(events.back().at("usage").at("completion_tokens").as_int64(), 13);
  events.pop_back();
  for (const json::value& event : events) EXPECT_TRUE(event.at("usage").is_null());

  events =
      stream("/v1/chat/completions",
             std::string(kHi) + R"(,"stream_options":{"include_usage":true,"continuous_usage_stats":true})");
  EXPECT_EQ(events[0].at("usage").at("completion_tokens").as_int64(), 1);
  EXPECT_EQ(events.back().at("usage").at("completion_tokens").as_int64(), 13);
}

TEST_F(ApiServerTest, StreamedChoicesKeepTheirIndex) {
  engine_.answer = [](const Request&, uint32_t c) { return "answer " + std::to_string(c); };
  start();
  const auto events = stream("/v1/chat/completions", std::string(kHi) + ",\"n\":3");
  std::vector<std::string> texts(3);
  std::vector<int> roles(3), ends(3);
  for (const json::value& event : events) {
    const auto index = static_cast<size_t>(choice_of(event).at("index").as_int64());
    texts[index] += text_of({event});
    roles[index] += choice_of(event).at("delta").as_object().contains("role");
    ends[index] += !choice_of(event).at("finish_reason").is_null();
  }
  EXPECT_THAT(texts, ElementsAre("answer 0", "answer 1", "answer 2"));
  EXPECT_THAT(roles, ElementsAre(1, 1, 1));
  EXPECT_THAT(ends, ElementsAre(1, 1, 1));
}

TEST_F(ApiServerTest, StreamedToolCalls) {
  engine_.answer = [](const Request&, uint32_t) {
    return "Wait.<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call><tool_call>{\"name\": "
           "\"g\"}</tool_call>";
  };
  start();
  const auto events = stream("/v1/chat/completions",
                             std::string(kHi) + R"(,"tools":[{"type":"function","function":{"name":"f"}}])");
  EXPECT_EQ(text_of(events), "Wait.");
  std::vector<std::string> names;
  for (const json::value& event : events) {
    const json::value* calls = choice_of(event).at("delta").as_object().if_contains("tool_calls");
    if (calls == nullptr) continue;
    for (const json::value& call : calls->as_array()) {
      EXPECT_EQ(call.at("index").as_int64(), static_cast<int64_t>(names.size()));
      EXPECT_EQ(call.at("type").as_string(), "function");
      EXPECT_TRUE(call.at("id").is_string());
      EXPECT_TRUE(call.at("function").at("arguments").is_string());
      names.emplace_back(call.at("function").at("name").as_string());
    }
  }
  EXPECT_THAT(names, ElementsAre("f", "g"));
  EXPECT_EQ(choice_of(events.back()).at("finish_reason").as_string(), "tool_calls");
}

TEST_F(ApiServerTest, ConnectionSurvivesAStream) {
  start();
  RawClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    client.send(request("POST", "/v1/chat/completions", std::string("{\"stream\":true,") + kHi + "}"));
    EXPECT_EQ(text_of(events_of(client.receive_answer().body)), "Hello there!");
  }
}

TEST_F(ApiServerTest, SilentStreamIsKeptAlive) {
  config_.http.quiet_time = 20ms;
  engine_.step_ms = 150;
  start();
  const auto answer =
      post("/v1/chat/completions", std::string("{\"stream\":true,\"max_tokens\":2,") + kHi + "}");
  EXPECT_THAT(answer.body, HasSubstr("\n\n\n\n"));
  EXPECT_EQ(text_of(events_of(answer.body)), "He");
}

TEST_F(ApiServerTest, NothingIsSaidWhereKeepAliveIsOff) {
  config_.http.quiet_time = 0ms;
  config_.http.stall_time = 40ms;  // the server looks after its connections every 10 ms
  engine_.step_ms = 150;
  start();
  const auto answer =
      post("/v1/chat/completions", std::string("{\"stream\":true,\"max_tokens\":2,") + kHi + "}");
  EXPECT_THAT(answer.body, ::testing::Not(HasSubstr("\n\n\n")));
  EXPECT_EQ(text_of(events_of(answer.body)), "He");
}

}  // namespace
}  // namespace kvasir::testing
