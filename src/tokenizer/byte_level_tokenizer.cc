#include "tokenizer/byte_level_tokenizer.h"

#include <fmt/format.h>

#include "tokenizer/nfc.h"
#include "tokenizer/utf8.h"

namespace kvasir {
namespace {

// GPT-2 spells bytes as printable characters: those of Latin-1 that print stand for themselves, the 68 others
// for U+0100 onwards in order.
constexpr bool spelled_as_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<int16_t, 0x144> make_byte_of_code() {
  std::array<int16_t, 0x144> bytes{};
  for (int16_t& b : bytes) b = -1;
  int shifted = 0x100;
  for (int byte = 0; byte < 256; ++byte)
    bytes[static_cast<size_t>(spelled_as_itself(byte) ? byte : shifted++)] = static_cast<int16_t>(byte);
  return bytes;
}

constexpr std::array<int16_t, 0x144> kByteOfCode = make_byte_of_code();

// Appends the bytes that `text` spells; false, with nothing appended, when it has other characters.
bool append_spelled_bytes(std::string_view text, std::string* bytes) {
  const size_t before = bytes->size();
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text, pos);
    if (!c.valid() || c.code >= kByteOfCode.size() || kByteOfCode[c.code] < 0) {
      bytes->resize(before);
      return false;
    }
    bytes->push_back(static_cast<char>(kByteOfCode[c.code]));
    pos += c.length;
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> ByteLevelTokenizer::load(const GgufMetadata& metadata) {
  std::unique_ptr<ByteLevelTokenizer> tokenizer(new ByteLevelTokenizer);
  KVASIR_RETURN_IF_ERROR(tokenizer->read(metadata));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

Status ByteLevelTokenizer::read(const GgufMetadata& metadata) {
  // Text cut by a wrong expression gives wrong ids and a worse model, silently: so the key must be there.
  KVASIR_ASSIGN_OR_RETURN(const std::string pre, metadata.require_string("tokenizer.ggml.pre"));
  KVASIR_ASSIGN_OR_RETURN(rules_, find_pre_tokenizer(pre));
  model_ = "gpt2";
  KVASIR_RETURN_IF_ERROR(read_vocabulary(metadata, {.add_bos = rules_->add_bos}));
  read_tokens();
  return read_merges(metadata);
}

void ByteLevelTokenizer::read_tokens() {
  std::string bytes;
  bytes_.reserve(texts_.size(), 0);
  index_ = std::make_unique<TokenIndex>(&bytes_, texts_.size());
  byte_tokens_.fill(kNoToken);
  for (size_t i = 0; i < texts_.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    bytes.clear();
    const bool spelled = kinds_[i] == TokenKind::kNormal && append_spelled_bytes(texts_[id], &bytes);
    bytes_.append(spelled ? std::string_view(bytes) : texts_[id]);
    if (spelled) index_->add(id);
    if (kinds_[i] == TokenKind::kControl || kinds_[i] == TokenKind::kUnknown)
      added_tokens_.add(texts_[id], id, true);
    if (kinds_[i] == TokenKind::kUserDefined) added_tokens_.add(texts_[id], id, false);
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_tokens_[byte] = index_->find({&c, 1});
  }
}

Status ByteLevelTokenizer::read_merges(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(const std::vector<std::string>* merges,
                          metadata.require_strings("tokenizer.ggml.merges"));
  merges_ = std::make_unique<MergeTable>(merges->size());
  std::string bytes;
  for (size_t rank = 0; rank < merges->size(); ++rank) {
    const std::string_view merge = (*merges)[rank];
    const size_t space = merge.find(' ', 1);
    bytes.clear();
    bool good = space != std::string_view::npos && append_spelled_bytes(merge.substr(0, space), &bytes);
    const size_t middle = bytes.size();
    good = good && append_spelled_bytes(merge.substr(space + 1), &bytes);
    const std::string_view both = bytes;
    const TokenId left = good ? index_->find(both.substr(0, middle)) : kNoToken;
    const TokenId right = good ? index_->find(both.substr(middle)) : kNoToken;
    const TokenId merged = good ? index_->find(both) : kNoToken;
    if (left == kNoToken || right == kNoToken || merged == kNoToken) {
      return corrupt(fmt::format("tokenizer.ggml.merges[{}] ('{}') does not join two tokens to a third", rank,
                                 to_valid_utf8(merge.substr(0, 80))));
    }
    merges_->set(left, right, {static_cast<uint32_t>(rank), merged});
  }
  return Status();
}

void ByteLevelTokenizer::encode_text(std::string_view text, BpeScratch* scratch,
                                     std::vector<TokenId>* out) const {
  std::string normalised;
  if (rules_->nfc) text = to_nfc(text, &normalised);
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = rules_->next(text, pos);
    const std::string_view piece = text.substr(pos, end - pos);
    pos = end;
    if (rules_->ignore_merges) {
      if (const TokenId id = index_->find(piece); id != kNoToken) {
        out->push_back(id);
        continue;
      }
    }
    scratch->symbols.clear();
    for (const char c : piece) {
      const TokenId id = byte_tokens_[static_cast<uint8_t>(c)];
      if (id != kNoToken) scratch->symbols.push_back(id);
    }
    merge_symbols(*merges_, scratch, out);
  }
}

}  // namespace kvasir
