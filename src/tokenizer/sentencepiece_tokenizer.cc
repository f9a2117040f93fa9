#include "tokenizer/sentencepiece_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "tokenizer/utf8.h"

namespace kvasir {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
// Bound on the work of looking for merges, which is quadratic in a token's length: seconds, not hours, for a
// hostile file. Gemma's 262,144 tokens need 2^25.
constexpr uint64_t kMaxMergeWork = uint64_t{1} << 32;

std::string with_spaces(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const bool mark = text.substr(pos, kSpaceMark.size()) == kSpaceMark;
    out += mark ? ' ' : text[pos];
    pos += mark ? kSpaceMark.size() : 1;
  }
  return out;
}

std::string with_marks(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ') {
      out += kSpaceMark;
    } else {
      out += c;
    }
  }
  return out;
}

// The value of "<0xE2>"; -1 for any other text.
int byte_of(std::string_view text) {
  const auto hex = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const int high = hex(text[3]), low = hex(text[4]);
  return high < 0 || low < 0 ? -1 : 16 * high + low;
}

bool is_boundary(std::string_view text, size_t pos) {
  return (static_cast<uint8_t>(text[pos]) & 0xC0) != 0x80;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> SentencePieceTokenizer::load(const GgufMetadata& metadata) {
  std::unique_ptr<SentencePieceTokenizer> tokenizer(new SentencePieceTokenizer);
  KVASIR_RETURN_IF_ERROR(tokenizer->read(metadata));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

Status SentencePieceTokenizer::read(const GgufMetadata& metadata) {
  model_ = "llama";
  KVASIR_RETURN_IF_ERROR(read_vocabulary(metadata, {.add_bos = true}));
  if (!pre_.empty() && pre_ != "default")
    return unsupported(fmt::format("tokenizer.ggml.pre is '{}', which is not known for model 'llama'", pre_));
  KVASIR_ASSIGN_OR_RETURN(const std::optional<bool> prefix,
                          metadata.get_bool("tokenizer.ggml.add_space_prefix"));
  space_prefix_ = prefix.value_or(true);
  KVASIR_ASSIGN_OR_RETURN(const std::optional<bool> squeeze,
                          metadata.get_bool("tokenizer.ggml.remove_extra_whitespaces"));
  if (squeeze.value_or(false))
    return unsupported("tokenizer.ggml.remove_extra_whitespaces is set, which is not supported");
  KVASIR_ASSIGN_OR_RETURN(std::optional<std::vector<double>> scores,
                          metadata.get_floats("tokenizer.ggml.scores"));
  if (!scores) return corrupt("tokenizer.ggml.scores is missing");
  if (scores->size() != texts_.size()) {
    return corrupt(fmt::format("tokenizer.ggml.scores has {} entries, tokenizer.ggml.tokens {}",
                               scores->size(), texts_.size()));
  }
  KVASIR_RETURN_IF_ERROR(read_tokens());
  return make_merges(*scores);
}

Status SentencePieceTokenizer::read_tokens() {
  bytes_.reserve(texts_.size(), 0);
  index_ = std::make_unique<TokenIndex>(&bytes_, texts_.size());
  byte_tokens_.fill(kNoToken);
  for (size_t i = 0; i < texts_.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenKind kind = kinds_[i];
    if (kind == TokenKind::kByte) {
      const int byte = byte_of(texts_[id]);
      if (byte < 0)
        return corrupt(fmt::format("token {} is of kind byte, but not spelled <0x00> to <0xFF>", i));
      byte_tokens_[static_cast<size_t>(byte)] = id;
      const char c = static_cast<char>(byte);
      bytes_.append({&c, 1});
      continue;
    }
    bytes_.append(with_spaces(texts_[id]));
    if (is_text(id)) index_->add(id);
    if (kind == TokenKind::kControl || kind == TokenKind::kUnknown) added_tokens_.add(texts_[id], id, true);
    // Files spell Gemma's runs of spaces as spaces; the model's own tokenizer spells them with U+2581, so
    // they are found as merges, not in the text.
    if (kind == TokenKind::kUserDefined) added_tokens_.add(with_marks(texts_[id]), id, false);
  }
  const auto missing = std::count(byte_tokens_.begin(), byte_tokens_.end(), kNoToken);
  if (missing != 0 && missing != 256)
    return corrupt(fmt::format("{} of the 256 byte tokens are missing", missing));
  has_byte_tokens_ = missing == 0;
  for (size_t c = 0; c < ascii_tokens_.size(); ++c) {
    const char text = static_cast<char>(c);
    ascii_tokens_[c] = index_->find({&text, 1});
  }
  space_ = ascii_tokens_[' '];
  return Status();
}

// The merges that HF's converter derives from the scores of a SentencePiece model: every split of every token
// into two tokens, best score first; among equal scores the longer left part first, then the longer right
// part, then the order of the vocabulary. User-defined tokens score 0 there, whatever the GGUF file says.
// Gives Gemma 3's 514,906 published merges in their order.
Status SentencePieceTokenizer::make_merges(const std::vector<double>& scores) {
  const auto score = [&](TokenId id) {
    return kind(id) == TokenKind::kUserDefined ? 0.0 : scores[static_cast<size_t>(id)];
  };
  std::vector<TokenId> order;
  uint64_t work = 0;
  for (TokenId id = 0; in_vocab(id); ++id) {
    if (!std::isfinite(scores[static_cast<size_t>(id)]))
      return corrupt(fmt::format("tokenizer.ggml.scores[{}] is not a finite number", id));
    if (!is_text(id) || bytes_[id].size() < 2) continue;
    note_before_space(bytes_[id]);
    order.push_back(id);
    work += static_cast<uint64_t>(bytes_[id].size()) * bytes_[id].size();
    if (work > kMaxMergeWork)
      return corrupt(
          fmt::format("the tokens up to {} are too long ({} bytes the last)", id, bytes_[id].size()));
  }
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return score(a) > score(b); });
  std::vector<Split> splits;
  splits.reserve(2 * order.size());
  for (auto begin = order.begin(); begin != order.end();) {
    const auto end = std::find_if(begin, order.end(), [&](TokenId id) { return score(id) != score(*begin); });
    const auto first = static_cast<ptrdiff_t>(splits.size());
    for (const TokenId id : std::span(begin, end)) append_splits(id, &splits);
    std::stable_sort(splits.begin() + first, splits.end(), [](const Split& a, const Split& b) {
      return std::tie(a.left_length, a.right_length) > std::tie(b.left_length, b.right_length);
    });
    begin = end;
  }
  constexpr size_t kAhead = 16;
  merges_ = std::make_unique<MergeTable>(splits.size());
  for (size_t i = 0; i < splits.size(); ++i) {
    if (i + kAhead < splits.size()) merges_->prefetch(splits[i + kAhead].left, splits[i + kAhead].right);
    merges_->set(splits[i].left, splits[i].right, {static_cast<uint32_t>(i), splits[i].merged});
  }
  return Status();
}

// Appends the splits of one token, in the order of their left and right parts in the vocabulary.
void SentencePieceTokenizer::append_splits(TokenId id, std::vector<Split>* splits) {
  const std::string_view text = bytes_[id];
  std::vector<size_t> cuts;
  std::vector<std::pair<uint64_t, uint64_t>> hashes;
  for (size_t pos = 1; pos < text.size(); ++pos) {
    if (!is_boundary(text, pos)) continue;
    cuts.push_back(pos);
    hashes.emplace_back(TokenIndex::hash(text.substr(0, pos)), TokenIndex::hash(text.substr(pos)));
    index_->prefetch(hashes.back().first);
    index_->prefetch(hashes.back().second);
  }
  const size_t first = splits->size();
  for (size_t i = 0; i < cuts.size(); ++i) {
    const TokenId left = index_->find(text.substr(0, cuts[i]), hashes[i].first);
    if (left == kNoToken) continue;
    const TokenId right = index_->find(text.substr(cuts[i]), hashes[i].second);
    if (right == kNoToken) continue;
    splits->push_back(
        {left, right, id, static_cast<uint32_t>(i + 1), static_cast<uint32_t>(cuts.size() - i)});
  }
  std::sort(
      splits->begin() + static_cast<ptrdiff_t>(first), splits->end(),
      [](const Split& a, const Split& b) { return std::tie(a.left, a.right) < std::tie(b.left, b.right); });
}

// Remembers which characters of a token stand right before a space: no cut may be made between the two.
void SentencePieceTokenizer::note_before_space(std::string_view text) {
  for (size_t pos = text.find(' ', 1); pos != std::string_view::npos; pos = text.find(' ', pos + 1)) {
    size_t start = pos - 1;
    while (start > 0 && !is_boundary(text, start)) --start;
    before_space_.insert(index_->find(text.substr(start, pos - start)));
  }
}

// `character` is one character or one byte that is part of none.
void SentencePieceTokenizer::append_symbols(std::string_view character, std::vector<TokenId>* symbols) const {
  const TokenId id = character == kSpaceMark ? space_ : index_->find(character);
  if (id != kNoToken) {
    symbols->push_back(id);
  } else if (has_byte_tokens_) {
    for (const char c : character) symbols->push_back(byte_tokens_[static_cast<uint8_t>(c)]);
  } else if (unk_ != kNoToken && (symbols->empty() || symbols->back() != unk_)) {
    symbols->push_back(unk_);
  }
}

// Cuts the text before spaces, where no token reaches across, so that merging works on words: same ids, less
// work.
void SentencePieceTokenizer::encode_text(std::string_view text, BpeScratch* scratch,
                                         std::vector<TokenId>* out) const {
  std::vector<TokenId>& symbols = scratch->symbols;
  symbols.clear();
  if (space_prefix_ && space_ != kNoToken) symbols.push_back(space_);
  for (size_t pos = 0; pos < text.size();) {
    const auto byte = static_cast<uint8_t>(text[pos]);
    const size_t length = byte < 0x80 ? 1 : decode_utf8(text, pos).length;
    const TokenId ascii = byte < 0x80 ? ascii_tokens_[byte] : kNoToken;
    if (byte == ' ' && ascii != kNoToken && !symbols.empty() && !before_space_.contains(symbols.back())) {
      merge_symbols(*merges_, scratch, out);
      symbols.clear();
    }
    if (ascii != kNoToken) {
      symbols.push_back(ascii);
    } else {
      append_symbols(text.substr(pos, length), &symbols);
    }
    pos += length;
  }
  merge_symbols(*merges_, scratch, out);
}

}  // namespace kvasir
