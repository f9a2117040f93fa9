#include "server/logprob_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tokenizer/utf8.h"

namespace kvasir {
namespace {

std::string id_name(TokenId id) {
  return fmt::format("token_id:{}", id);
}

bool valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!c.valid()) return false;
    at += c.length;
  }
  return true;
}

}  // namespace

int64_t character_starts(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

float json_logprob(float logprob) {
  constexpr float kLowest = -9999.0f;
  return std::isfinite(logprob) ? std::max(logprob, kLowest) : kLowest;
}

std::string LogprobJson::token_name(TokenId id) const {
  return as_ids_ ? id_name(id) : to_valid_utf8(tokenizer_.token_bytes(id, true));
}

std::string LogprobJson::legacy_name(TokenId id) const {
  if (as_ids_) return id_name(id);
  const std::string_view bytes = tokenizer_.token_bytes(id, true);
  if (valid_utf8(bytes)) return std::string(bytes);
  std::string name = "bytes:";
  for (const char c : bytes) name += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  return name;
}

void LogprobJson::chat_token(JsonWriter& json, TokenId id, float logprob) const {
  json.field("token", token_name(id)).field("logprob", json_logprob(logprob));
  json.key("bytes").begin_array();
  for (const char c : tokenizer_.token_bytes(id, true)) json.value(static_cast<uint8_t>(c));
  json.end_array();
}

std::string LogprobJson::chat(std::span<const SampledToken> tokens) const {
  JsonWriter json;
  json.begin_object().key("content").begin_array();
  for (const SampledToken& token : tokens) {
    json.begin_object();
    chat_token(json, token.token, token.logprob);
    json.key("top_logprobs").begin_array();
    for (const TokenLogprob& top : token.top) {
      json.begin_object();
      chat_token(json, top.token, top.logprob);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().null_field("refusal").end_object();
  return json.take();
}

// Names of two tokens may be the same text; the less likely one is then written by its id, so that none is
// lost.
void LogprobJson::legacy_top(JsonWriter& json, const SampledToken& token) const {
  std::set<std::string> used;
  const auto write = [&](TokenId id, float logprob) {
    std::string name = legacy_name(id);
    if (!used.insert(name).second) name = id_name(id);
    json.field(name, json_logprob(logprob));
  };
  json.begin_object();
  bool chosen = false;
  for (const TokenLogprob& top : token.top) {
    write(top.token, top.logprob);
    chosen = chosen || top.token == token.token;
  }
  if (!chosen) write(token.token, token.logprob);
  json.end_object();
}

std::string LogprobJson::legacy(std::span<const SampledToken> tokens, bool without_logprob_first,
                                bool special, int64_t* offset) const {
  JsonWriter json;
  json.begin_object().key("tokens").begin_array();
  for (const SampledToken& token : tokens) json.value(legacy_name(token.token));
  json.end_array().key("token_logprobs").begin_array();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i == 0 && without_logprob_first)
      json.null();
    else
      json.value(json_logprob(tokens[i].logprob));
  }
  json.end_array().key("top_logprobs").begin_array();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i == 0 && without_logprob_first)
      json.null();
    else
      legacy_top(json, tokens[i]);
  }
  json.end_array().key("text_offset").begin_array();
  for (const SampledToken& token : tokens) {
    json.value(std::max<int64_t>(*offset, 0));
    *offset += character_starts(tokenizer_.token_bytes(token.token, special));
  }
  json.end_array().end_object();
  return json.take();
}

std::string LogprobJson::prompt(std::span<const SampledToken> after_first) const {
  JsonWriter json;
  json.begin_array().null();
  for (const SampledToken& token : after_first) {
    json.begin_object();
    const auto write = [&](TokenId id, float logprob, size_t rank) {
      json.key(std::to_string(id)).begin_object();
      json.field("logprob", json_logprob(logprob)).field("rank", rank);
      json.field("decoded_token", to_valid_utf8(tokenizer_.token_bytes(id, true))).end_object();
    };
    bool chosen = false;
    for (size_t i = 0; i < token.top.size(); ++i) {
      write(token.top[i].token, token.top[i].logprob, i + 1);
      chosen = chosen || token.top[i].token == token.token;
    }
    if (!chosen) write(token.token, token.logprob, token.rank);
    json.end_object();
  }
  json.end_array();
  return json.take();
}

}  // namespace kvasir
