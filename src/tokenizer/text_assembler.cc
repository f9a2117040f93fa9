#include "tokenizer/text_assembler.h"

#include <algorithm>

#include "base/check.h"
#include "tokenizer/utf8.h"

namespace kvasir {

StopMatcher::StopMatcher(std::string stop) : stop_(std::move(stop)), border_(stop_.size() + 1, 0) {
  CHECK(!stop_.empty());
  for (size_t i = 1, length = 0; i < stop_.size(); ++i) {
    while (length > 0 && stop_[i] != stop_[length]) length = border_[length];
    if (stop_[i] == stop_[length]) ++length;
    border_[i + 1] = length;
  }
}

bool StopMatcher::push(char c) {
  while (matched_ > 0 && stop_[matched_] != c) matched_ = border_[matched_];
  if (stop_[matched_] == c) ++matched_;
  return matched_ == stop_.size();
}

TextAssembler::TextAssembler(const Tokenizer& tokenizer, Options options)
    : tokenizer_(tokenizer), options_(std::move(options)) {
  for (const std::string& stop : options_.stop) stops_.emplace_back(to_valid_utf8(stop));
}

int TextAssembler::push(TokenId token, std::string* released) {
  CHECK(!stopped_);
  std::string_view bytes = tokenizer_.token_bytes(token, options_.special);
  if (first_text_ && !bytes.empty()) {
    first_text_ = false;
    const bool artefact = options_.starts_text && tokenizer_.strips_leading_space();
    if (artefact && bytes.front() == ' ') bytes.remove_prefix(1);
  }
  partial_ += bytes;
  const size_t scanned = held_.size();
  take_characters();
  for (size_t i = scanned; i < held_.size(); ++i) {
    const int stop = completed_stop(held_[i]);
    if (stop < 0) continue;
    const size_t end = i + 1;
    const size_t length = stops_[static_cast<size_t>(stop)].size();
    released->append(held_, 0, options_.include_stop ? end : end - length);
    held_.clear();
    stopped_ = true;
    return stop;
  }
  release_all_but(longest_match(), released);
  return -1;
}

void TextAssembler::finish(std::string* released) {
  if (stopped_) return;
  released->append(held_);
  if (!partial_.empty()) released->append(kReplacementUtf8);
  held_.clear();
  partial_.clear();
}

// Moves what has become text from partial_ to held_.
void TextAssembler::take_characters() {
  size_t pos = 0;
  while (pos < partial_.size()) {
    const Utf8Char c = decode_utf8(partial_, pos);
    if (c.state == Utf8Char::State::kIncomplete) break;
    held_ += c.valid() ? std::string_view(partial_).substr(pos, c.length) : kReplacementUtf8;
    pos += c.length;
  }
  partial_.erase(0, pos);
}

// The stop string that the next byte of the text completes, or -1. Of several the longest, which begins
// first.
int TextAssembler::completed_stop(char c) {
  int best = -1;
  for (size_t i = 0; i < stops_.size(); ++i) {
    if (!stops_[i].push(c)) continue;
    if (best < 0 || stops_[i].size() > stops_[static_cast<size_t>(best)].size()) best = static_cast<int>(i);
  }
  return best;
}

size_t TextAssembler::longest_match() const {
  size_t longest = 0;
  for (const StopMatcher& stop : stops_) longest = std::max(longest, stop.matched());
  return longest;
}

void TextAssembler::release_all_but(size_t kept, std::string* released) {
  const size_t ready = held_.size() - kept;
  released->append(held_, 0, ready);
  held_.erase(0, ready);
}

}  // namespace kvasir
