#include "server/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "server/logprob_json.h"
#include "server/request_fields.h"
#include "server/request_id.h"
#include "tokenizer/utf8.h"

namespace kvasir {

namespace json = boost::json;

namespace {

constexpr size_t kMaxPrompts = 256;
constexpr uint32_t kDefaultCompletionTokens = 16;

bool renders(const ChatTemplate& chat_template, const char* probe, TemplateValue content) {
  TemplateValue::Object message{{"role", "user"}, {"content", std::move(content)}};
  TemplateValue::Object context{{"messages", TemplateValue::Array{std::move(message)}},
                                {"add_generation_prompt", true},
                                {"bos_token", ""},
                                {"eos_token", ""}};
  const auto parts = chat_template.render(context, 0, {});
  if (!parts.ok()) return false;
  std::string text;
  for (const auto& part : *parts) text += part.text;
  return text.find(probe) != std::string::npos && text.find("'type'") == std::string::npos &&
         text.find("\"type\"") == std::string::npos;
}

// Appends `tag` to the text of the last message.
void tag_last_message(TemplateValue::Array& messages, const std::string& tag) {
  const auto& object = std::get<std::shared_ptr<TemplateValue::Object>>(messages.back().data());
  for (auto& [key, value] : *object) {
    if (key != "content") continue;
    if (const auto* text = std::get_if<std::string>(&value.data())) {
      value = *text + tag;
    } else if (const auto* parts = std::get_if<std::shared_ptr<TemplateValue::Array>>(&value.data())) {
      (*parts)->push_back(TemplateValue::Object{{"type", "text"}, {"text", tag}});
    }
  }
}

// Drops the tag and everything after it; false when it is not there.
bool cut_at_tag(const std::string& tag, std::vector<ChatTemplate::Part>* parts) {
  for (size_t i = parts->size(); i-- > 0;) {
    const size_t at = (*parts)[i].text.rfind(tag);
    if (at == std::string::npos) continue;
    (*parts)[i].text.resize(at);
    parts->resize(i + 1);
    return true;
  }
  return false;
}

}  // namespace

ContentForm template_content_form(const ChatTemplate& chat_template) {
  constexpr const char* kProbe = "kvasir-probe";
  if (renders(chat_template, kProbe, kProbe)) return ContentForm::kText;
  TemplateValue::Array parts{TemplateValue::Object{{"type", "text"}, {"text", kProbe}}};
  return renders(chat_template, kProbe, std::move(parts)) ? ContentForm::kParts : ContentForm::kText;
}

PromptBuilder::PromptBuilder(const ServedModel& model) : model_(model) {
  if (model.chat_template != nullptr) form_ = template_content_form(*model.chat_template);
}

Problem PromptBuilder::build(GenerationRequest* request, std::vector<Prompt>* prompts) const {
  if (Problem problem = check_token_ids(*request)) return problem;
  if (request->chat) {
    if (Problem problem = chat(*request, &prompts->emplace_back())) return problem;
  } else if (Problem problem = completions(*request, prompts)) {
    return problem;
  }
  return fit(request, *prompts);
}

Problem PromptBuilder::check_token_ids(const GenerationRequest& request) const {
  const Tokenizer& tokenizer = *model_.tokenizer;
  const auto unknown = [&](const char* field, TokenId id) {
    return bad_field(field, fmt::format("'{}' names token {}; the vocabulary has {} tokens, numbered from 0",
                                        field, id, tokenizer.vocab_size()));
  };
  for (const auto& [id, bias] : request.sampling.logit_bias) {
    if (!tokenizer.in_vocab(id)) return unknown("logit_bias", id);
  }
  for (const TokenId id : request.sampling.stop_token_ids) {
    if (!tokenizer.in_vocab(id)) return unknown("stop_token_ids", id);
  }
  if (request.sampling.allowed_tokens) {
    for (const TokenId id : *request.sampling.allowed_tokens) {
      if (!tokenizer.in_vocab(id)) return unknown("allowed_token_ids", id);
    }
  }
  return std::nullopt;
}

void PromptBuilder::one_beginning(std::vector<TokenId>* tokens, bool wanted) const {
  const TokenId bos = model_.tokenizer->bos();
  if (bos == kNoToken || !wanted) return;
  const auto first_other = std::find_if(tokens->begin(), tokens->end(), [&](TokenId t) { return t != bos; });
  const auto count = first_other - tokens->begin();
  if (count == 0)
    tokens->insert(tokens->begin(), bos);
  else
    tokens->erase(tokens->begin(), tokens->begin() + (count - 1));
}

Problem PromptBuilder::render(const GenerationRequest& request, const std::string& tag,
                              std::vector<ChatTemplate::Part>* parts) const {
  const Tokenizer& tokenizer = *model_.tokenizer;
  TemplateValue messages;
  if (Problem problem = messages_to_template(request.messages, form_, &messages)) return problem;
  if (request.continue_final_message) {
    tag_last_message(*std::get<std::shared_ptr<TemplateValue::Array>>(messages.data()), tag);
  }
  const auto token_text = [&](TokenId id) {
    return TemplateValue::trusted(id == kNoToken ? std::string() : std::string(tokenizer.token_text(id)));
  };
  TemplateValue::Object context{
      {"messages", std::move(messages)},
      {"bos_token", token_text(tokenizer.bos())},
      {"eos_token", token_text(tokenizer.eos())},
      {"add_generation_prompt", request.add_generation_prompt.value_or(!request.continue_final_message)}};
  if (request.use_tools && !request.tools.empty())
    context.emplace_back("tools", template_value(request.tools));
  if (!request.documents.empty()) context.emplace_back("documents", template_value(request.documents));
  for (const auto& variable : request.template_variables) {
    context.emplace_back(std::string(variable.key()), template_value(variable.value()));
  }
  auto rendered = model_.chat_template->render(context, std::time(nullptr), {});
  if (!rendered.ok()) return bad_field("messages", rendered.message());
  *parts = std::move(*rendered);
  return std::nullopt;
}

Problem PromptBuilder::chat(const GenerationRequest& request, Prompt* prompt) const {
  if (model_.chat_template == nullptr) {
    return bad_field(
        "messages",
        "this model has no chat template: use /v1/completions, or start the server with --chat-template");
  }
  const std::string tag = random_id("kvasir-continue-");
  std::vector<ChatTemplate::Part> parts;
  if (Problem problem = render(request, tag, &parts)) return problem;
  if (request.continue_final_message && !cut_at_tag(tag, &parts)) {
    return bad_field("continue_final_message",
                     "the template does not show the last message, so it cannot be continued");
  }
  std::vector<Tokenizer::Part> views;
  views.reserve(parts.size());
  for (const auto& part : parts) views.push_back({part.text, part.from_template});
  prompt->tokens = model_.tokenizer->encode_parts(views, false);
  one_beginning(&prompt->tokens, model_.tokenizer->add_bos());
  if (prompt->tokens.empty())
    return bad_field("messages", "the template makes an empty prompt of these messages");
  return std::nullopt;
}

Problem PromptBuilder::read_prompt(const json::value& value, const std::string& where,
                                   const GenerationRequest& request, Prompt* prompt) const {
  const bool add_special = request.add_special_tokens;
  const Tokenizer& tokenizer = *model_.tokenizer;
  if (value.is_string()) {
    prompt->text = std::string(value.get_string());
    prompt->tokens =
        tokenizer.encode(prompt->text, {.add_special = add_special, .parse_special = request.parse_special});
    one_beginning(&prompt->tokens, add_special && tokenizer.add_bos());
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.get_array().size(); ++i) {
      const auto id = json_integer(value.get_array()[i]);
      const std::string at = fmt::format("{}[{}]", where, i);
      if (!id) return bad_field(at, fmt::format("'{}' must be a token id", at));
      if (*id < 0 || *id >= tokenizer.vocab_size()) {
        return bad_field(at, fmt::format("'{}' is {}; the vocabulary has {} tokens, numbered from 0", at, *id,
                                         tokenizer.vocab_size()));
      }
      prompt->tokens.push_back(static_cast<TokenId>(*id));
    }
    prompt->text = to_valid_utf8(tokenizer.decode(prompt->tokens, true));
  } else {
    return bad_field(where, fmt::format("'{}' must be a string or a list of token ids", where));
  }
  if (prompt->tokens.empty()) return bad_field(where, fmt::format("'{}' is empty", where));
  int64_t spelled = 0;
  for (const TokenId id : prompt->tokens) spelled += character_starts(tokenizer.token_bytes(id, true));
  prompt->hidden_characters = std::max<int64_t>(spelled - character_starts(prompt->text), 0);
  return std::nullopt;
}

Problem PromptBuilder::completions(const GenerationRequest& request, std::vector<Prompt>* prompts) const {
  const json::value& value = request.prompt;
  const bool list = value.is_array() && !value.get_array().empty() &&
                    (value.get_array()[0].is_string() || value.get_array()[0].is_array());
  if (!list) return read_prompt(value, "prompt", request, &prompts->emplace_back());
  const json::array& values = value.get_array();
  if (values.size() > kMaxPrompts) {
    return bad_field("prompt", fmt::format("'prompt' holds {} prompts; at most {} are allowed", values.size(),
                                           kMaxPrompts));
  }
  const size_t places = max_queued_of_one_user(model_.engine->config());
  if (values.size() > places) {  // to wait and try again would never help
    return bad_field(
        "prompt",
        fmt::format("'prompt' holds {} prompts, and each takes a place in the queue, which has {} for "
                    "one user (--max-num-queued-reqs)",
                    values.size(), places));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string where = fmt::format("prompt[{}]", i);
    if (values[i].kind() != values[0].kind()) {
      return bad_field(where, "'prompt' must not mix strings and lists of token ids");
    }
    if (Problem problem = read_prompt(values[i], where, request, &prompts->emplace_back())) {
      return problem;
    }
  }
  return std::nullopt;
}

Problem PromptBuilder::fit(GenerationRequest* request, const std::vector<Prompt>& prompts) const {
  const uint32_t at_once = model_.engine->config().max_num_seqs;
  if (request->drawn() > at_once) {
    const char* field = request->best_of ? "best_of" : "n";
    return bad_field(field, fmt::format("'{}' is {}; this server runs {} sequences at once (--max-num-seqs)",
                                        field, request->drawn(), at_once));
  }
  const uint64_t window = model_.context_window();
  uint64_t longest = 0;
  for (const Prompt& prompt : prompts) longest = std::max<uint64_t>(longest, prompt.tokens.size());
  const uint64_t room = longest < window ? window - longest : 1;
  uint64_t wanted = request->chat ? room : std::min<uint64_t>(room, kDefaultCompletionTokens);
  if (request->max_tokens) wanted = static_cast<uint64_t>(*request->max_tokens);
  if (longest + wanted > window) return context_length_exceeded(window, longest, wanted, request->chat);
  if (request->sampling.min_tokens > wanted) {
    return bad_field("min_tokens",
                     fmt::format("'min_tokens' is {}; without 'max_tokens' the answer has at most {}",
                                 request->sampling.min_tokens, wanted));
  }
  request->sampling.max_tokens = static_cast<uint32_t>(wanted);
  return std::nullopt;
}

}  // namespace kvasir
