#include "tokenizer/bpe_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "tokenizer/end_tokens.h"

namespace kvasir {
namespace {

// GGUF's numbering of tokenizer.ggml.token_type.
bool token_kind(int64_t type, TokenKind* kind) {
  constexpr TokenKind kKinds[] = {TokenKind::kNormal,      TokenKind::kUnknown, TokenKind::kControl,
                                  TokenKind::kUserDefined, TokenKind::kUnused,  TokenKind::kByte};
  if (type < 1 || type > static_cast<int64_t>(std::size(kKinds))) return false;
  *kind = kKinds[type - 1];
  return true;
}

}  // namespace

Status BpeTokenizer::read_vocabulary(const GgufMetadata& metadata, Defaults defaults) {
  KVASIR_ASSIGN_OR_RETURN(const std::vector<std::string>* tokens,
                          metadata.require_strings("tokenizer.ggml.tokens"));
  if (tokens->empty()) return corrupt("tokenizer.ggml.tokens is empty");
  if (tokens->size() > static_cast<size_t>(std::numeric_limits<TokenId>::max()))
    return corrupt(fmt::format("tokenizer.ggml.tokens has {} entries", tokens->size()));
  for (const std::string& text : *tokens) texts_.append(text);
  KVASIR_RETURN_IF_ERROR(read_kinds(metadata));
  KVASIR_RETURN_IF_ERROR(read_special_ids(metadata));

  KVASIR_ASSIGN_OR_RETURN(const std::optional<std::string> pre, metadata.get_string("tokenizer.ggml.pre"));
  KVASIR_ASSIGN_OR_RETURN(const std::optional<std::string> chat,
                          metadata.get_string("tokenizer.chat_template"));
  KVASIR_ASSIGN_OR_RETURN(const std::optional<bool> bos, metadata.get_bool("tokenizer.ggml.add_bos_token"));
  KVASIR_ASSIGN_OR_RETURN(const std::optional<bool> eos, metadata.get_bool("tokenizer.ggml.add_eos_token"));
  pre_ = pre.value_or("");
  chat_template_ = chat.value_or("");
  add_bos_ = bos.value_or(defaults.add_bos && bos_ != kNoToken);
  add_eos_ = eos.value_or(false);
  if (add_bos_ && bos_ == kNoToken)
    return corrupt("tokenizer.ggml.add_bos_token is set, but tokenizer.ggml.bos_token_id is missing");
  if (add_eos_ && eos_ == kNoToken)
    return corrupt("tokenizer.ggml.add_eos_token is set, but tokenizer.ggml.eos_token_id is missing");
  return Status();
}

Status BpeTokenizer::read_kinds(const GgufMetadata& metadata) {
  kinds_.assign(texts_.size(), TokenKind::kNormal);
  KVASIR_ASSIGN_OR_RETURN(const std::vector<int64_t>* types, metadata.get_ints("tokenizer.ggml.token_type"));
  if (types == nullptr) return Status();
  if (types->size() != texts_.size()) {
    return corrupt(fmt::format("tokenizer.ggml.token_type has {} entries, tokenizer.ggml.tokens {}",
                               types->size(), texts_.size()));
  }
  for (size_t i = 0; i < types->size(); ++i) {
    if (!token_kind((*types)[i], &kinds_[i]))
      return corrupt(fmt::format("tokenizer.ggml.token_type[{}] is {}, not 1 to 6", i, (*types)[i]));
  }
  return Status();
}

// Also marks these tokens as control tokens where the file has no kinds, so that text never turns into them.
Status BpeTokenizer::read_special_ids(const GgufMetadata& metadata) {
  TokenId eot = kNoToken, eom = kNoToken;
  const struct {
    const char* key;
    TokenId* id;
    bool ends;
  } kKeys[] = {
      {"tokenizer.ggml.bos_token_id", &bos_, false},     {"tokenizer.ggml.eos_token_id", &eos_, true},
      {"tokenizer.ggml.eot_token_id", &eot, true},       {"tokenizer.ggml.eom_token_id", &eom, true},
      {"tokenizer.ggml.unknown_token_id", &unk_, false}, {"tokenizer.ggml.padding_token_id", &pad_, false}};
  const bool have_kinds = metadata.contains("tokenizer.ggml.token_type");
  for (const auto& [key, id, ends] : kKeys) {
    KVASIR_ASSIGN_OR_RETURN(const std::optional<int64_t> value,
                            metadata.get_int(key, 0, static_cast<int64_t>(texts_.size()) - 1));
    if (!value) continue;
    *id = static_cast<TokenId>(*value);
    if (ends) end_tokens_.push_back(*id);
    if (!have_kinds) kinds_[static_cast<size_t>(*value)] = TokenKind::kControl;
  }
  add_known_end_tokens(*this, &end_tokens_);
  return Status();
}

std::vector<TokenId> BpeTokenizer::encode(std::string_view text, EncodeOptions options) const {
  const AddedTokens::Region whole{0, text.size()};
  return encode_regions(text, {&whole, options.parse_special ? size_t{1} : size_t{0}}, options.add_special);
}

std::vector<TokenId> BpeTokenizer::encode_parts(std::span<const Part> parts, bool add_special) const {
  std::string text;
  std::vector<AddedTokens::Region> regions;
  for (const Part& part : parts) {
    if (part.parse_special && !regions.empty() && regions.back().end == text.size()) {
      regions.back().end += part.text.size();
    } else if (part.parse_special) {
      regions.push_back({text.size(), text.size() + part.text.size()});
    }
    text += part.text;
  }
  return encode_regions(text, regions, add_special);
}

std::vector<TokenId> BpeTokenizer::encode_regions(std::string_view text,
                                                  std::span<const AddedTokens::Region> control_regions,
                                                  bool add_special) const {
  std::vector<TokenId> out;
  out.reserve(text.size() / 3 + 2);
  const bool wants_bos = add_special && add_bos_;
  if (wants_bos) out.push_back(bos_);
  BpeScratch scratch;
  AddedTokens::Search search(added_tokens_, text, control_regions);
  for (size_t pos = 0; pos < text.size();) {
    const auto match = search.next(pos);
    const size_t end = match ? match->begin : text.size();
    if (end > pos) encode_text(text.substr(pos, end - pos), &scratch, &out);
    if (match) out.push_back(match->id);
    pos = match ? match->end : text.size();
  }
  if (wants_bos && out.size() > 1 && out[1] == bos_) out.erase(out.begin());
  if (add_special && add_eos_ && (out.empty() || out.back() != eos_)) out.push_back(eos_);
  return out;
}

std::string_view BpeTokenizer::token_bytes(TokenId id, bool special) const {
  if (!in_vocab(id)) return {};
  switch (kind(id)) {
    case TokenKind::kUnused:
      return {};
    case TokenKind::kControl:
    case TokenKind::kUnknown:
      return special ? bytes_[id] : std::string_view();
    default:
      return bytes_[id];
  }
}

}  // namespace kvasir
