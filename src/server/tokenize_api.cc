#include "server/tokenize_api.h"

#include <fmt/format.h>

#include "server/json_writer.h"
#include "server/request_fields.h"
#include "tokenizer/utf8.h"

namespace kvasir {

namespace json = boost::json;

namespace {

Problem read_flag(const json::object& body, const char* name, bool* flag) {
  const json::value* value = body.if_contains(name);
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (!value->is_bool()) return bad_field(name, fmt::format("'{}' must be a boolean", name));
  *flag = value->get_bool();
  return std::nullopt;
}

struct TokenizeOptions {
  bool add_special = true, parse_special = true;
  bool pieces = false;   // llama.cpp's with_pieces
  bool strings = false;  // vLLM's return_token_strs
};

Problem read_options(const json::object& body, bool llama_dialect, TokenizeOptions* options) {
  options->add_special = !llama_dialect;
  for (const auto& [name, flag] :
       {std::pair{llama_dialect ? "add_special" : "add_special_tokens", &options->add_special},
        std::pair{"parse_special", &options->parse_special}, std::pair{"with_pieces", &options->pieces},
        std::pair{"return_token_strs", &options->strings}}) {
    if (Problem problem = read_flag(body, name, flag)) return problem;
  }
  return std::nullopt;
}

void write_piece(JsonWriter& out, std::string_view bytes) {
  const std::string text = to_valid_utf8(bytes);
  if (text == bytes) {
    out.value(text);
    return;
  }
  out.begin_array();
  for (const char c : bytes) out.value(static_cast<uint8_t>(c));
  out.end_array();
}

std::string tokens_json(const ServedModel& model, const std::vector<TokenId>& tokens,
                        const TokenizeOptions& options) {
  JsonWriter out;
  out.begin_object().field("count", tokens.size()).field("max_model_len", model.context_window());
  out.key("tokens").begin_array();
  for (const TokenId id : tokens) {
    if (!options.pieces) {
      out.value(id);
      continue;
    }
    out.begin_object().field("id", id).key("piece");
    write_piece(out, model.tokenizer->token_bytes(id, true));
    out.end_object();
  }
  out.end_array().key("token_strs");
  if (options.strings) {
    out.begin_array();
    for (const TokenId id : tokens) out.value(model.tokenizer->token_text(id));
    out.end_array();
  } else {
    out.null();
  }
  out.end_object();
  return out.take();
}

}  // namespace

Problem tokenize(const ServedModel& model, const PromptBuilder& prompts, const json::value& body,
                 std::string* answer) {
  const json::object* object = body.if_object();
  if (object == nullptr) return bad_field("", "the request body must be a JSON object");
  TokenizeOptions options;
  std::vector<TokenId> tokens;
  if (object->contains("messages")) {
    GenerationRequest request;
    uint32_t unknown = 0;
    if (Problem problem = read_request(body, kChatField, &request, &unknown)) return problem;
    if (Problem problem = read_options(*object, false, &options)) return problem;
    Prompt prompt;
    if (Problem problem = prompts.chat(request, &prompt)) return problem;
    tokens = std::move(prompt.tokens);
  } else {
    const bool llama_dialect = object->contains("content");
    const char* name = llama_dialect ? "content" : "prompt";
    const json::value* text = object->if_contains(name);
    if (text == nullptr) return bad_field("prompt", "one of 'prompt', 'messages' and 'content' is needed");
    if (!text->is_string()) return bad_field(name, fmt::format("'{}' must be a string", name));
    if (Problem problem = read_options(*object, llama_dialect, &options)) return problem;
    tokens = model.tokenizer->encode(
        text->get_string(), {.add_special = options.add_special, .parse_special = options.parse_special});
  }
  *answer = tokens_json(model, tokens, options);
  return std::nullopt;
}

Problem detokenize(const ServedModel& model, const json::value& body, std::string* answer) {
  const json::object* object = body.if_object();
  const json::value* list = object != nullptr ? object->if_contains("tokens") : nullptr;
  if (list == nullptr || !list->is_array())
    return bad_field("tokens", "'tokens' must be a list of token ids");
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < list->get_array().size(); ++i) {
    const auto id = json_integer(list->get_array()[i]);
    if (!id || *id < 0 || *id >= model.tokenizer->vocab_size()) {
      const std::string where = fmt::format("tokens[{}]", i);
      return bad_field(where, fmt::format("'{}' must be a token id from 0 to {}", where,
                                          model.tokenizer->vocab_size() - 1));
    }
    tokens.push_back(static_cast<TokenId>(*id));
  }
  const std::string text = to_valid_utf8(model.tokenizer->decode(tokens, true));
  JsonWriter out;
  out.begin_object().field("prompt", text).field("content", text).end_object();
  *answer = out.take();
  return std::nullopt;
}

std::string tokenizer_info_json(const ServedModel& model) {
  const Tokenizer& tokenizer = *model.tokenizer;
  JsonWriter out;
  out.begin_object().field("tokenizer_class", tokenizer.model()).field("vocab_size", tokenizer.vocab_size());
  for (const auto& [name, id] :
       {std::pair{"bos_token", tokenizer.bos()}, std::pair{"eos_token", tokenizer.eos()},
        std::pair{"unk_token", tokenizer.unk()}, std::pair{"pad_token", tokenizer.pad()}}) {
    out.key(name);
    id == kNoToken ? out.null() : out.value(tokenizer.token_text(id));
  }
  out.field("add_bos_token", tokenizer.add_bos()).field("add_eos_token", tokenizer.add_eos());
  out.field("model_max_length", model.context_window()).key("chat_template");
  model.chat_template == nullptr ? out.null() : out.value(model.chat_template_source);
  out.end_object();
  return out.take();
}

std::string model_json(const ServedModel& model, int64_t created) {
  JsonWriter out;
  out.begin_object().field("id", model.name).field("object", "model").field("created", created);
  out.field("owned_by", "kvasir").field("root", model.aliases.empty() ? model.name : model.aliases.front());
  out.null_field("parent").field("max_model_len", model.context_window());
  out.key("meta")
      .begin_object()
      .field("n_ctx", model.context_window())
      .field("n_ctx_train", model.trained_context);
  out.field("n_vocab", model.tokenizer->vocab_size()).field("n_params", model.parameters);
  out.field("size", model.file_bytes)
      .field("quant", model.quantization)
      .field("architecture", model.architecture);
  out.end_object().end_object();
  return out.take();
}

std::string model_list_json(const ServedModel& model, int64_t created) {
  JsonWriter out;
  out.begin_object()
      .field("object", "list")
      .key("data")
      .begin_array()
      .raw(model_json(model, created))
      .end_array();
  out.end_object();
  return out.take();
}

}  // namespace kvasir
