#include "server/request_fields.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "server/json_input.h"

namespace kvasir {
namespace {

struct Read {
  Problem problem;
  GenerationRequest request;
  uint32_t unknown = 0;
};

Read read(const std::string& members, uint8_t endpoint = kChatField) {
  const std::string base =
      endpoint == kChatField ? R"("messages":[{"role":"user","content":"hi"}])" : R"("prompt":"hi")";
  Read result;
  const auto body = parse_json("{" + base + (members.empty() ? "" : "," + members) + "}");
  EXPECT_TRUE(body.ok()) << body.message();
  result.problem = read_request(*body, endpoint, &result.request, &result.unknown);
  return result;
}

std::string param_of(const std::string& members, uint8_t endpoint = kChatField) {
  const Read result = read(members, endpoint);
  if (!result.problem) return "accepted";
  EXPECT_EQ(result.problem->status, 400);
  EXPECT_FALSE(result.problem->message.empty());
  return result.problem->param;
}

TEST(RequestFields, ReadsEveryUsedField) {
  const Read r = read(
      R"("model":"m","max_tokens":7,"min_tokens":2,"n":3,"stop":["a","b"],"stop_token_ids":[5,6],
         "include_stop_str_in_output":true,"ignore_eos":true,"skip_special_tokens":false,"temperature":0.5,"top_p":0.9,
         "top_k":40,"min_p":0.1,"repetition_penalty":1.1,"presence_penalty":-1,"frequency_penalty":2,
         "logit_bias":{"10":-100,"11":5.5},"allowed_token_ids":[1,2],"seed":-9,"stream":true,
         "stream_options":{"include_usage":true,"continuous_usage_stats":true},"logprobs":true,"top_logprobs":4,
         "prompt_logprobs":1,"return_token_ids":true,"return_tokens_as_token_ids":true,"timings_per_token":true,
         "response_format":{"type":"text"},"cache_salt":"s","request_id":"r","tools":[{"type":"function",
         "function":{"name":"f"}}],"tool_choice":"none","parallel_tool_calls":false,"continue_final_message":true,
         "chat_template_kwargs":{"enable_thinking":false},"documents":[{}])");
  ASSERT_FALSE(r.problem) << r.problem->message;
  EXPECT_EQ(r.unknown, 0u);
  const GenerationRequest& q = r.request;
  EXPECT_EQ(q.model, "m");
  EXPECT_EQ(q.max_tokens, 7);
  EXPECT_EQ(q.sampling.min_tokens, 2u);
  EXPECT_EQ(q.n, 3);
  EXPECT_EQ(q.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(q.sampling.stop_token_ids, (std::vector<TokenId>{5, 6}));
  EXPECT_TRUE(q.include_stop && q.sampling.ignore_eos && !q.skip_special_tokens);
  EXPECT_FLOAT_EQ(q.sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(q.sampling.top_p, 0.9f);
  EXPECT_EQ(q.sampling.top_k, 40);
  EXPECT_FLOAT_EQ(q.sampling.min_p, 0.1f);
  EXPECT_FLOAT_EQ(q.sampling.repetition_penalty, 1.1f);
  EXPECT_FLOAT_EQ(q.sampling.presence_penalty, -1.0f);
  EXPECT_FLOAT_EQ(q.sampling.frequency_penalty, 2.0f);
  EXPECT_EQ(q.sampling.logit_bias, (std::vector<std::pair<TokenId, float>>{{10, -100.0f}, {11, 5.5f}}));
  EXPECT_EQ(q.sampling.allowed_tokens, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(q.seed, -9);
  EXPECT_TRUE(q.stream && q.include_usage && q.continuous_usage);
  EXPECT_TRUE(q.chat_logprobs && q.top_logprobs == 4 && q.prompt_logprobs == 1);
  EXPECT_TRUE(q.token_ids && q.tokens_as_ids && q.timings);
  EXPECT_EQ(q.cache_salt, "s");
  EXPECT_EQ(q.tools.size(), 1u);
  EXPECT_TRUE(!q.use_tools && !q.parallel_tool_calls && q.continue_final_message);
  EXPECT_EQ(q.template_variables.size(), 1u);
}

TEST(RequestFields, NullIsAbsentEverywhere) {
  for (const RequestField& field : request_fields()) {
    for (const uint8_t endpoint : {kChatField, kCompletionField}) {
      if ((field.endpoints & endpoint) == 0 || field.name == "messages" || field.name == "prompt") continue;
      EXPECT_EQ(param_of("\"" + std::string(field.name) + "\":null", endpoint), "accepted") << field.name;
    }
  }
}

TEST(RequestFields, WrongTypesNameTheField) {
  const std::map<FieldType, std::string> wrong = {
      {FieldType::kBoolean, "\"yes\""}, {FieldType::kInteger, "1.5"}, {FieldType::kNumber, "\"hot\""},
      {FieldType::kString, "1"},        {FieldType::kStrings, "[1]"}, {FieldType::kIntegers, "[\"a\"]"},
      {FieldType::kArray, "{}"},        {FieldType::kObject, "[]"}};
  for (const RequestField& field : request_fields()) {
    if (field.effect != FieldEffect::kUsed || field.type == FieldType::kAny) continue;
    const uint8_t endpoint = (field.endpoints & kChatField) != 0 ? kChatField : kCompletionField;
    const std::string name(field.name);
    if (name == "messages") continue;
    EXPECT_EQ(param_of("\"" + name + "\":" + wrong.at(field.type), endpoint), name);
  }
}

TEST(RequestFields, RangesAreKept) {
  for (const char* bad : {"\"temperature\":-0.1", "\"temperature\":1e400", "\"top_p\":-0.1", "\"top_p\":1.1",
                          "\"top_k\":-2", "\"min_p\":2", "\"n\":0", "\"n\":17", "\"n\":1000000000",
                          "\"max_tokens\":-1", "\"seed\":1180591620717411303424", "\"presence_penalty\":3",
                          "\"frequency_penalty\":-2.5", "\"top_logprobs\":21", "\"repetition_penalty\":0",
                          "\"cache_salt\":\"\"", "\"prompt_logprobs\":21", "\"prompt_logprobs\":-1"}) {
    const std::string text(bad);
    EXPECT_EQ(param_of(text), text.substr(1, text.find('"', 1) - 1)) << bad;
  }
  for (const char* good : {"\"temperature\":0", "\"top_p\":0", "\"top_p\":1", "\"top_k\":-1", "\"n\":16",
                           "\"seed\":9007199254740993", "\"top_k\":5.0", "\"max_tokens\":1"}) {
    EXPECT_EQ(param_of(good), "accepted") << good;
  }
  EXPECT_EQ(param_of("\"logprobs\":21", kCompletionField), "logprobs");
  EXPECT_EQ(param_of("\"logprobs\":true", kCompletionField), "logprobs");
}

std::string message_of(const std::string& members) {
  const Read result = read(members);
  return result.problem ? result.problem->message : "accepted";
}

TEST(RequestFields, ErrorsSayTheNumber) {
  EXPECT_EQ(message_of("\"n\":17"), "'n' is 17; it must be from 1 to 16");
  EXPECT_EQ(message_of("\"top_p\":1.25"), "'top_p' is 1.25; it must be from 0 to 1");
  EXPECT_EQ(message_of("\"priority\":-2147483649"),
            "'priority' is -2147483649; it must be from -2147483648 to 2147483647");
  EXPECT_EQ(message_of("\"priority\":18446744073709551615"),
            "'priority' is 18446744073709551615; it must be from -2147483648 to 2147483647");
  EXPECT_EQ(message_of("\"priority\":1e300"),
            "'priority' is 1e+300; it must be from -2147483648 to 2147483647");
  EXPECT_EQ(message_of("\"seed\":9223372036854775808"),
            "'seed' is 9223372036854775808; it must be an integer of 64 bits");
  EXPECT_EQ(message_of("\"priority\":1.5"), "'priority' must be an integer");
  EXPECT_EQ(message_of("\"cache_salt\":\"" + std::string(1025, 'x') + "\""),
            "'cache_salt': its length in bytes is 1025; it must be from 1 to 1024");
  EXPECT_EQ(message_of("\"request_id\":\"a\\nforged line\""),
            "'request_id' holds the byte 0x0a; it must be printable ASCII");
  EXPECT_EQ(message_of("\"stop_token_ids\":[" + std::string(512, '1') + "]"),
            "'stop_token_ids' must be a list of token ids");
}

TEST(RequestFields, ErrorsUseTheSpellingOfTheRequest) {
  EXPECT_EQ(param_of("\"max_tokens\":-1"), "max_tokens");
  EXPECT_EQ(param_of("\"max_completion_tokens\":-1"), "max_completion_tokens");
  EXPECT_EQ(param_of("\"n_predict\":\"x\""), "n_predict");
  EXPECT_EQ(param_of("\"max_completion_tokens\":0"), "max_completion_tokens");
  EXPECT_EQ(read("\"max_tokens\":5,\"max_completion_tokens\":3").request.max_tokens, 3);
  EXPECT_EQ(read("\"max_tokens\":5,\"max_completion_tokens\":null").request.max_tokens, 5);
  EXPECT_EQ(param_of("\"max_tokens\":\"5\",\"max_completion_tokens\":3"), "max_tokens");
  EXPECT_EQ(param_of("\"max_tokens\":-4,\"max_completion_tokens\":3"), "max_tokens");
}

TEST(RequestFields, BadBiasesAreNamed) {
  for (const char* bad : {R"({"x":1})", R"({"-1":1})", R"({"1.5":1})", R"({"":1})", R"({"99999999999":1})",
                          R"({"1":"a"})", R"({"1":101})", R"({"1":1e999})"}) {
    EXPECT_EQ(param_of("\"logit_bias\":" + std::string(bad)), "logit_bias") << bad;
  }
  std::string many = "\"logit_bias\":{\"0\":1";
  for (int i = 1; i < 1025; ++i) many += ",\"" + std::to_string(i) + "\":1";
  EXPECT_EQ(param_of(many + "}"), "logit_bias");
}

TEST(RequestFields, StopHasLimits) {
  EXPECT_EQ(read("\"stop\":\"one\"").request.stop, std::vector<std::string>{"one"});
  EXPECT_EQ(param_of("\"stop\":\"" + std::string(257, 'x') + "\""), "stop");
  std::string many = "\"stop\":[\"a\"";
  for (int i = 0; i < 16; ++i) many += ",\"a\"";
  EXPECT_EQ(param_of(many + "]"), "stop");
}

// As in vLLM. Nobody means it; clients without stop strings send null or [].
TEST(RequestFields, EmptyStopStringsAreRefusedAndNoneAreNone) {
  for (const uint8_t endpoint : {kChatField, kCompletionField}) {
    for (const char* bad : {R"("stop":"")", R"("stop":[""])", R"("stop":["a",""])"})
      EXPECT_EQ(param_of(bad, endpoint), "stop") << bad;
    const Read none = read(R"("stop":[])", endpoint);
    EXPECT_FALSE(none.problem);
    EXPECT_TRUE(none.request.stop.empty());
  }
}

TEST(RequestFields, UnknownFieldsAreCountedNotRefused) {
  const Read r = read("\"no_such_field\":1,\"another\":{},\"user\":\"u\",\"metadata\":{}");
  EXPECT_FALSE(r.problem);
  EXPECT_EQ(r.unknown, 2u);
}

TEST(RequestFields, WhatIsNotBuiltIsRefusedUnlessNeutral) {
  for (const char* bad :
       {"\"response_format\":{\"type\":\"json_object\"}", "\"response_format\":{\"type\":\"json_schema\"}",
        "\"guided_json\":{\"a\":1}", "\"grammar\":\"root ::= x\"", "\"chat_template\":\"{{ x }}\"",
        "\"mirostat\":2", "\"typical_p\":0.5", "\"tool_choice\":\"required\"", "\"use_beam_search\":true",
        "\"bad_words\":[\"a\"]"}) {
    const Read r = read(bad);
    ASSERT_TRUE(r.problem) << bad;
    EXPECT_EQ(r.problem->status, 400);
    EXPECT_EQ(r.problem->code, "unsupported_parameter");
    EXPECT_NE(std::string(bad).find(r.problem->param), std::string::npos);
  }
  for (const char* good : {"\"grammar\":\"\"", "\"mirostat\":0", "\"typical_p\":1.0", "\"bad_words\":[]",
                           "\"guided_json\":{}", "\"use_beam_search\":false", "\"tool_choice\":\"auto\""}) {
    EXPECT_EQ(param_of(good), "accepted") << good;
  }
  EXPECT_EQ(param_of("\"suffix\":\"end\"", kCompletionField), "suffix");
}

TEST(RequestFields, CombinationsAreChecked) {
  EXPECT_EQ(param_of("\"max_tokens\":0"), "max_tokens");
  EXPECT_EQ(param_of("\"max_tokens\":0,\"echo\":true", kCompletionField), "accepted");
  EXPECT_EQ(param_of("\"max_tokens\":3,\"min_tokens\":4"), "min_tokens");
  EXPECT_EQ(param_of("\"top_logprobs\":2"), "top_logprobs");
  EXPECT_EQ(param_of("\"best_of\":2,\"n\":4"), "best_of");
  EXPECT_EQ(param_of("\"best_of\":2,\"n\":4", kCompletionField), "best_of");
  EXPECT_EQ(param_of("\"best_of\":4,\"n\":2", kCompletionField), "accepted");
  EXPECT_EQ(param_of("\"best_of\":4,\"n\":2,\"stream\":true", kCompletionField), "best_of");
  EXPECT_EQ(param_of("\"best_of\":2,\"n\":2,\"stream\":true", kCompletionField), "accepted");
  EXPECT_EQ(param_of("\"continue_final_message\":true,\"add_generation_prompt\":true"),
            "continue_final_message");
  EXPECT_EQ(param_of("\"chat_template_kwargs\":{\"tokenize\":false}"), "chat_template_kwargs.tokenize");
  EXPECT_EQ(param_of("\"chat_template_kwargs\":{\"chat_template\":\"x\"}"),
            "chat_template_kwargs.chat_template");
  EXPECT_EQ(param_of("\"stream_options\":{\"include_usage\":1}"), "stream_options.include_usage");
  EXPECT_EQ(param_of("\"tools\":[{\"type\":\"function\"}]"), "tools[0].function.name");
}

TEST(RequestFields, TheInputMustBeThere) {
  GenerationRequest request;
  uint32_t unknown = 0;
  for (const auto& [text, endpoint, param] :
       {std::tuple{"{}", kChatField, "messages"}, std::tuple{"{\"messages\":[]}", kChatField, "messages"},
        std::tuple{"{\"messages\":null}", kChatField, "messages"},
        std::tuple{"{}", kCompletionField, "prompt"}, std::tuple{"[]", kChatField, ""}}) {
    const Problem problem = read_request(*parse_json(text), endpoint, &request, &unknown);
    ASSERT_TRUE(problem) << text;
    EXPECT_EQ(problem->param, param);
  }
}

TEST(RequestFields, NoNameIsThereTwice) {
  for (const uint8_t endpoint : {kChatField, kCompletionField}) {
    std::set<std::string> seen;
    for (const RequestField& field : request_fields()) {
      if ((field.endpoints & endpoint) == 0) continue;
      std::istringstream names(std::string(field.name) + " " + std::string(field.aliases));
      for (std::string name; names >> name;) EXPECT_TRUE(seen.insert(name).second) << name;
    }
  }
}

TEST(ApiPage, IsWhatTheTableSays) {
  std::ifstream file(std::string(KVASIR_SOURCE_DIR) + "/docs/api.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_NE(page.str().find(api_fields_markdown()), std::string::npos)
      << "docs/api.md is out of date: build make_api_docs and run build/release/src/server/make_api_docs "
         "docs/api.md";
}

}  // namespace
}  // namespace kvasir
