#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <type_traits>

#include "server/request_fields.h"

namespace kvasir {
namespace {

namespace json = boost::json;
using Value = json::value;
using Request = GenerationRequest;

template <class T>
void assign(T& to, const Value& value) {
  if constexpr (std::is_same_v<T, bool>)
    to = value.get_bool();
  else if constexpr (std::is_integral_v<T>)
    to = static_cast<T>(*json_integer(value));
  else if constexpr (std::is_floating_point_v<T>)
    to = static_cast<T>(json_number(value));
  else if constexpr (std::is_same_v<T, std::string>)
    to = std::string(value.get_string());
  else if constexpr (std::is_same_v<T, json::array>)
    to = value.get_array();
  else if constexpr (std::is_same_v<T, json::object>)
    to = value.get_object();
  else if constexpr (std::is_same_v<T, json::value>)
    to = value;
  else if constexpr (std::is_same_v<T, std::vector<TokenId>>) {
    for (const Value& v : value.get_array()) {
      to.push_back(static_cast<TokenId>(std::clamp<int64_t>(*json_integer(v), kNoToken, INT32_MAX)));
    }
  } else {
    assign(to.emplace(), value);  // std::optional
  }
}

// Stores the value in a member of the request, or of its sampling parameters.
template <auto Member>
Problem set(const Value& value, std::string_view, Request& request) {
  if constexpr (requires { request.*Member; }) {
    assign(request.*Member, value);
  } else {
    assign(request.sampling.*Member, value);
  }
  return std::nullopt;
}

Problem read_max_tokens(const Value& value, std::string_view name, Request& request) {
  assign(request.max_tokens, value);
  request.max_tokens_name = name;
  return std::nullopt;
}

constexpr size_t kMaxStopBytes = 256;
constexpr size_t kMaxBiases = 1024;

Problem read_stop(const Value& value, std::string_view name, Request& request) {
  const auto add = [&](const Value& v) -> Problem {
    const std::string text(v.get_string());
    if (text.size() > kMaxStopBytes) {
      return bad_field(std::string(name), fmt::format("a string of '{}' has {} bytes; at most {} are allowed",
                                                      name, text.size(), kMaxStopBytes));
    }
    if (text.empty()) {
      return bad_field(
          std::string(name),
          fmt::format("'{}' holds an empty string, which stands everywhere in every answer; send "
                      "null or [] for none",
                      name));
    }
    request.stop.push_back(text);
    return std::nullopt;
  };
  if (value.is_string()) return add(value);
  for (const Value& v : value.get_array()) {
    if (Problem problem = add(v)) return problem;
  }
  return std::nullopt;
}

Problem read_logit_bias(const Value& value, std::string_view name, Request& request) {
  const json::object& biases = value.get_object();
  if (biases.size() > kMaxBiases) {
    return bad_field(std::string(name), fmt::format("'{}' has {} entries; at most {} are allowed", name,
                                                    biases.size(), kMaxBiases));
  }
  for (const auto& entry : biases) {
    const std::string key(entry.key());
    const bool digits = !key.empty() && key.size() <= 9 &&
                        std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits)
      return bad_field(std::string(name), fmt::format("'{}': the key '{}' is no token id", name, key));
    const Value& bias = entry.value();
    if (!bias.is_number() || !(std::abs(json_number(bias)) <= 100.0)) {
      return bad_field(
          std::string(name),
          fmt::format("'{}': the bias of token {} must be a number from -100 to 100", name, key));
    }
    request.sampling.logit_bias.emplace_back(std::stoi(key), static_cast<float>(json_number(bias)));
  }
  return std::nullopt;
}

Problem read_stream_options(const Value& value, std::string_view name, Request& request) {
  for (const auto& [key, target] : {std::pair{"include_usage", &request.include_usage},
                                    std::pair{"continuous_usage_stats", &request.continuous_usage}}) {
    const Value* option = value.get_object().if_contains(key);
    if (option == nullptr || option->is_null()) continue;
    if (!option->is_bool()) {
      const std::string param = fmt::format("{}.{}", name, key);
      return bad_field(param, fmt::format("'{}' must be a boolean", param));
    }
    *target = option->get_bool();
  }
  return std::nullopt;
}

Problem read_response_format(const Value& value, std::string_view name, Request&) {
  const Value* type = value.get_object().if_contains("type");
  if (type == nullptr || !type->is_string()) {
    return bad_field(fmt::format("{}.type", name), fmt::format("'{}.type' must be a string", name));
  }
  if (type->get_string() == "text") return std::nullopt;
  return unsupported_field(std::string(name),
                           fmt::format("'{}' of type '{}' is not supported; only 'text' is", name,
                                       std::string(type->get_string())));
}

Problem read_tool_choice(const Value& value, std::string_view name, Request& request) {
  if (value.is_string() && value.get_string() == "auto") return std::nullopt;
  if (value.is_string() && value.get_string() == "none") {
    request.use_tools = false;
    return std::nullopt;
  }
  const bool known = value.is_object() || (value.is_string() && value.get_string() == "required");
  if (!known) return bad_field(std::string(name), fmt::format("'{}' must be 'auto' or 'none'", name));
  return unsupported_field(std::string(name),
                           fmt::format("'{}' other than 'auto' and 'none' is not supported", name));
}

Problem read_tools(const Value& value, std::string_view name, Request& request) {
  const json::array& tools = value.get_array();
  for (size_t i = 0; i < tools.size(); ++i) {
    const json::object* tool = tools[i].if_object();
    const Value* function = tool != nullptr ? tool->if_contains("function") : nullptr;
    const Value* function_name =
        function != nullptr && function->is_object() ? function->get_object().if_contains("name") : nullptr;
    if (function_name == nullptr || !function_name->is_string() || function_name->get_string().empty()) {
      const std::string param = fmt::format("{}[{}].function.name", name, i);
      return bad_field(param, fmt::format("'{}' must be a string", param));
    }
  }
  request.tools = tools;
  return std::nullopt;
}

// What a template is given by us, or what would change how it is used rather than what it says.
constexpr std::string_view kReservedVariables[] = {"messages",
                                                   "tools",
                                                   "add_generation_prompt",
                                                   "continue_final_message",
                                                   "chat_template",
                                                   "tokenize",
                                                   "return_tensors",
                                                   "return_dict",
                                                   "conversation",
                                                   "documents",
                                                   "padding",
                                                   "truncation",
                                                   "max_length",
                                                   "bos_token",
                                                   "eos_token",
                                                   "pad_token",
                                                   "unk_token"};

Problem read_template_variables(const Value& value, std::string_view name, Request& request) {
  for (const auto& entry : value.get_object()) {
    const std::string key(entry.key());
    if (std::find(std::begin(kReservedVariables), std::end(kReservedVariables), key) !=
        std::end(kReservedVariables)) {
      return bad_field(fmt::format("{}.{}", name, key), fmt::format("'{}' may not set '{}'", name, key));
    }
  }
  request.template_variables = value.get_object();
  return std::nullopt;
}

// It goes into the log as it is.
Problem read_request_id(const Value& value, std::string_view name, Request& request) {
  request.request_id = std::string(value.get_string());
  const auto odd = std::ranges::find_if(request.request_id, [](char c) { return c < ' ' || c > '~'; });
  if (odd == request.request_id.end()) return std::nullopt;
  return bad_field(std::string(name), fmt::format("'{}' holds the byte 0x{:02x}; it must be printable ASCII",
                                                  name, static_cast<uint8_t>(*odd)));
}

Problem read_greedy_only(const Value& value, std::string_view name, Request&) {
  if (!value.get_bool()) return std::nullopt;
  return unsupported_field(std::string(name), fmt::format("'{}' is not supported", name));
}

constexpr double kInt32 = 2147483647.0;
constexpr uint8_t kBoth = kBothEndpoints, kChat = kChatField, kText = kCompletionField;
constexpr auto kUsed = FieldEffect::kUsed;
constexpr auto kNoEffect = FieldEffect::kNoEffect;
constexpr auto kRefused = FieldEffect::kRefused;
constexpr double kInf = std::numeric_limits<double>::infinity();
using T = FieldType;

const RequestField kFields[] = {
    // What to answer.
    {"model", "", kBoth, T::kString, 0, 4096, false, "the model served",
     "Name, file name or path of the model. Where the server was started with --served-model-name, any other "
     "name is a 404; else every name means the one model there is.",
     kUsed, set<&Request::model>},
    {"messages", "", kChat, T::kArray, 1, 4096, false, "400",
     "The conversation. Roles: system, developer, user, assistant, tool, function. Content: a string, null, "
     "or text parts.",
     kUsed, set<&Request::messages>},
    {"prompt", "", kText, T::kAny, -kInf, kInf, false, "400",
     "A string, a list of strings, a list of token ids, or a list of such lists (at most 256 prompts, and no "
     "more than the server's queue holds of one user).",
     kUsed, set<&Request::prompt>},
    {"tools", "", kChat, T::kArray, 0, 512, false, "none",
     "Functions that the template tells the model about; `<tool_call>` blocks in the answer become "
     "`tool_calls`. A template that names no tools leaves them out; the log says so when the server starts.",
     kUsed, read_tools},
    {"tool_choice", "", kChat, T::kAny, -kInf, kInf, false, "`auto`",
     "`auto`, or `none` to leave the tools out.", kUsed, read_tool_choice},
    {"parallel_tool_calls", "", kChat, T::kBoolean, -kInf, kInf, false, "true",
     "false keeps the first call of an answer only.", kUsed, set<&Request::parallel_tool_calls>},
    {"add_generation_prompt", "", kChat, T::kBoolean, -kInf, kInf, false, "true",
     "Whether the template opens the assistant's turn. With a last message from the assistant, that turn is "
     "closed and a new one opened, unless continue_final_message is set.",
     kUsed, set<&Request::add_generation_prompt>},
    {"continue_final_message", "", kChat, T::kBoolean, -kInf, kInf, false, "false",
     "The answer continues the last message instead of beginning a new one.", kUsed,
     set<&Request::continue_final_message>},
    {"chat_template_kwargs", "", kChat, T::kObject, -kInf, kInf, false, "none",
     "Further variables for the template. Names that the server sets itself are a 400.", kUsed,
     read_template_variables},
    {"documents", "", kChat, T::kArray, 0, 256, false, "none", "The template's variable of that name.", kUsed,
     set<&Request::documents>},
    {"add_special_tokens", "", kText, T::kBoolean, -kInf, kInf, false, "true",
     "Whether the beginning-of-text token is put in front, where the model asks for it.", kUsed,
     set<&Request::add_special_tokens>},
    {"parse_special", "", kText, T::kBoolean, -kInf, kInf, false, "true",
     "Whether control tokens written out in a prompt string count as such. In chats they never do: there "
     "only the template writes control tokens.",
     kUsed, set<&Request::parse_special>},
    {"echo", "", kText, T::kBoolean, -kInf, kInf, false, "false",
     "Puts the prompt in front of the answer; with logprobs, those of the prompt too.", kUsed,
     set<&Request::echo>},

    // How much.
    {"max_completion_tokens", "max_tokens n_predict", kBoth, T::kInteger, 0, kInt32, false,
     "chat: the rest of the context; completions: 16",
     "Most tokens of the answer; 0 only with `echo`. Together with the prompt they must fit the context; "
     "nothing is ever cut silently.",
     kUsed, read_max_tokens},
    {"min_tokens", "", kBoth, T::kInteger, 0, kInt32, false, "0", "No end of text and no stop token before.",
     kUsed, set<&SamplingParams::min_tokens>},
    {"n", "", kBoth, T::kInteger, 1, 16, false, "1",
     "Answers per prompt. Choice i draws from (seed, i); choice 0 equals the answer of n = 1.", kUsed,
     set<&Request::n>},
    {"best_of", "", kBoth, T::kInteger, 1, 16, false, "n",
     "Answers that are generated per prompt, n at least; the n with the highest mean log-probability per "
     "token are given, the best first. All count in usage. Above n not with stream.",
     kUsed, set<&Request::best_of>},
    {"stop", "", kBoth, T::kStrings, 0, 16, false, "none",
     "Strings that end the answer, each from 1 to 256 bytes (an empty one is a 400, an empty list is none); "
     "the text ends right before.",
     kUsed, read_stop},
    {"stop_token_ids", "", kBoth, T::kIntegers, 0, 256, false, "none", "Tokens that end the answer.", kUsed,
     set<&SamplingParams::stop_token_ids>},
    {"include_stop_str_in_output", "", kBoth, T::kBoolean, -kInf, kInf, false, "false",
     "Keeps the stop string at the end of the text.", kUsed, set<&Request::include_stop>},
    {"ignore_eos", "", kBoth, T::kBoolean, -kInf, kInf, false, "false",
     "Goes on after the end-of-text token.", kUsed, set<&SamplingParams::ignore_eos>},
    {"skip_special_tokens", "", kBoth, T::kBoolean, -kInf, kInf, false, "true",
     "false keeps control tokens in the text.", kUsed, set<&Request::skip_special_tokens>},

    // Which tokens.
    {"temperature", "", kBoth, T::kNumber, 0, 5, false, "1", "0 always takes the likeliest token.", kUsed,
     set<&SamplingParams::temperature>},
    {"top_p", "", kBoth, T::kNumber, 0, 1, false, "1",
     "Keeps the likeliest tokens that make up this share; 0: the likeliest one.", kUsed,
     set<&SamplingParams::top_p>},
    {"top_k", "", kBoth, T::kInteger, -1, kInt32, false, "0",
     "Keeps so many of the likeliest tokens; 0 or -1: all.", kUsed, set<&SamplingParams::top_k>},
    {"min_p", "", kBoth, T::kNumber, 0, 1, false, "0",
     "Drops tokens below this share of the likeliest one's.", kUsed, set<&SamplingParams::min_p>},
    {"repetition_penalty", "repeat_penalty", kBoth, T::kNumber, 0, 10, true, "1",
     "Divides the odds of tokens seen in prompt or answer.", kUsed, set<&SamplingParams::repetition_penalty>},
    {"presence_penalty", "", kBoth, T::kNumber, -2, 2, false, "0",
     "Subtracted once for tokens in the answer.", kUsed, set<&SamplingParams::presence_penalty>},
    {"frequency_penalty", "", kBoth, T::kNumber, -2, 2, false, "0",
     "Subtracted per occurrence of a token in the answer.", kUsed, set<&SamplingParams::frequency_penalty>},
    {"logit_bias", "", kBoth, T::kObject, -kInf, kInf, false, "none",
     "Token id to a bias from -100 to 100; at most 1024.", kUsed, read_logit_bias},
    {"allowed_token_ids", "", kBoth, T::kIntegers, 1, kInt32, false, "all",
     "Only these tokens may be chosen.", kUsed, set<&SamplingParams::allowed_tokens>},
    {"seed", "", kBoth, T::kInteger, -kInf, kInf, false, "a fresh one, returned in the answer",
     "Same request and seed: same answer, whatever else runs.", kUsed, set<&Request::seed>},

    // The answer's form.
    {"stream", "", kBoth, T::kBoolean, -kInf, kInf, false, "false",
     "Server-sent events, ended by `data: [DONE]`.", kUsed, set<&Request::stream>},
    {"stream_options", "", kBoth, T::kObject, -kInf, kInf, false, "none",
     "`include_usage`: a last event with the usage; `continuous_usage_stats`: running usage in every event.",
     kUsed, read_stream_options},
    {"logprobs", "", kChat, T::kBoolean, -kInf, kInf, false, "false",
     "Log-probabilities of the chosen tokens, of the model's own distribution.", kUsed,
     set<&Request::chat_logprobs>},
    {"top_logprobs", "", kChat, T::kInteger, 0, 20, false, "0", "So many alternatives per token.", kUsed,
     set<&Request::top_logprobs>},
    {"logprobs", "", kText, T::kInteger, 0, 20, false, "none",
     "Log-probabilities of the chosen tokens and so many alternatives; the chosen one is always among them.",
     kUsed, set<&Request::logprobs>},
    {"prompt_logprobs", "", kBoth, T::kInteger, 0, 20, false, "none",
     "Log-probabilities of the prompt's tokens and so many alternatives, as vLLM gives them.", kUsed,
     set<&Request::prompt_logprobs>},
    {"return_token_ids", "", kBoth, T::kBoolean, -kInf, kInf, false, "false",
     "Adds `prompt_token_ids` and `token_ids`.", kUsed, set<&Request::token_ids>},
    {"return_tokens_as_token_ids", "", kBoth, T::kBoolean, -kInf, kInf, false, "false",
     "Tokens in logprobs are written `token_id:N`.", kUsed, set<&Request::tokens_as_ids>},
    {"timings_per_token", "timings", kBoth, T::kBoolean, -kInf, kInf, false, "false",
     "Adds `timings` to the end of the answer, as llama.cpp's server does.", kUsed, set<&Request::timings>},
    {"response_format", "", kBoth, T::kObject, -kInf, kInf, false, "text", "Only `{\"type\": \"text\"}`.",
     kUsed, read_response_format},
    {"cache_salt", "", kBoth, T::kString, 1, 1024, false, "none",
     "Requests share cached prefixes only with requests of the same salt (and, where the server has API "
     "keys, of the same key).",
     kUsed, set<&Request::cache_salt>},
    {"speculate", "", kBoth, T::kString, 1, 256, false, "auto",
     "Which of the server's drafters may guess tokens ahead for this request: `auto`, `off`, or names "
     "separated by commas. The answer is the same in every case.",
     kUsed, set<&Request::speculate>},
    {"priority", "", kBoth, T::kInteger, -kInt32 - 1, kInt32, false,
     "0, or the best that the API key may ask for",
     "The lower number is handled earlier. See *Who goes first*.", kUsed, set<&Request::priority>},
    {"user", "safety_identifier", kBoth, T::kString, 0, 1024, false, "everybody who sends none is one user",
     "Whose request it is, for fair sharing on a server without API keys. See *Who goes first*.", kUsed,
     set<&Request::user>},
    {"request_id", "", kBoth, T::kString, 0, 128, false, "X-Request-Id",
     "A name for the logs, of printable ASCII characters: one line says which X-Request-Id it belongs to.",
     kUsed, read_request_id},
    {"use_beam_search", "", kBoth, T::kBoolean, -kInf, kInf, false, "false", "Only false.", kUsed,
     read_greedy_only},

    // Not built: refused rather than ignored, because the answer would not be what was asked for.
    {"suffix", "", kText, T::kString, -kInf, kInf, false, "",
     "write the model's fill-in-the-middle tokens into the prompt", kRefused, nullptr},
    {"chat_template", "", kChat, T::kString, -kInf, kInf, false, "",
     "a request may not bring its own template", kRefused, nullptr},
    {"echo", "", kChat, T::kBoolean, -kInf, kInf, false, "", "use /v1/completions", kRefused, nullptr},
    {"bad_words", "", kBoth, T::kStrings, -kInf, kInf, false, "", "use logit_bias", kRefused, nullptr},
    {"truncate_prompt_tokens", "", kBoth, T::kInteger, -kInf, kInf, false, "", "prompts are never cut",
     kRefused, nullptr},
    {"structured_outputs", "guided_json guided_regex guided_choice guided_grammar grammar json_schema", kBoth,
     T::kAny, -kInf, kInf, false, "", "constrained decoding is not built", kRefused, nullptr},
    {"functions", "function_call", kChat, T::kAny, -kInf, kInf, false, "", "use tools", kRefused, nullptr},
    {"modalities", "audio", kChat, T::kAny, -kInf, kInf, false, "", "the model answers in text only",
     kNoEffect, nullptr},
    {"mirostat", "mirostat_mode", kBoth, T::kInteger, -kInf, kInf, false, "", "that sampler is not built",
     kRefused, nullptr},
    {"dry_multiplier", "", kBoth, T::kNumber, -kInf, kInf, false, "", "that sampler is not built", kRefused,
     nullptr},
    {"xtc_probability", "", kBoth, T::kNumber, -kInf, kInf, false, "", "that sampler is not built", kRefused,
     nullptr},
    {"typical_p", "", kBoth, T::kNumber, 1, 1, false, "", "that sampler is not built", kRefused, nullptr},

    // Accepted for the sake of clients that send them.
    {"prompt_cache_key", "metadata store service_tier verbosity prediction", kBoth, T::kAny, -kInf, kInf,
     false, "", "Bookkeeping of OpenAI's own service.", kNoEffect, nullptr},
    {"session_id", "kv_transfer_params stream_interval", kBoth, T::kAny, -kInf, kInf, false, "",
     "vLLM's scheduling hints.", kNoEffect, nullptr},
    {"reasoning_effort", "include_reasoning thinking_token_budget reasoning_format", kBoth, T::kAny, -kInf,
     kInf, false, "", "For models with a separate reasoning channel.", kNoEffect, nullptr},
    {"length_penalty", "early_stopping spaces_between_special_tokens truncation_side", kBoth, T::kAny, -kInf,
     kInf, false, "", "Of use only with beam search or slow tokenizers.", kNoEffect, nullptr},
    {"cache_prompt",
     "id_slot n_keep n_discard min_keep repeat_last_n samplers mirostat_tau mirostat_eta dry_base "
     "dry_allowed_length dry_penalty_last_n dry_sequence_breakers xtc_threshold dynatemp_range "
     "dynatemp_exponent return_progress response_fields parse_tool_calls t_max_predict_ms sse_ping_interval "
     "n_probs",
     kBoth, T::kAny, -kInf, kInf, false, "", "llama.cpp's knobs without a counterpart here.", kNoEffect,
     nullptr},
};

}  // namespace

std::span<const RequestField> request_fields() {
  return kFields;
}

}  // namespace kvasir
