#pragma once

#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace kvasir {

// Watches a text, byte by byte, for one string (Knuth, Morris, Pratt 1977): constant time per byte, on
// average.
class StopMatcher {
 public:
  explicit StopMatcher(std::string stop);
  // Whether the string ends with this byte. After that nothing more may be pushed.
  bool push(char c);
  size_t size() const { return stop_.size(); }
  // How many bytes at the end of the text may be the beginning of the string: the longest such suffix.
  size_t matched() const { return matched_; }

 private:
  std::string stop_;
  std::vector<size_t> border_;  // [n]: the longest proper prefix of stop_ that ends its first n bytes
  size_t matched_ = 0;
};

// Turns one generation's tokens into text, incrementally: the only place where text is put together, for
// streamed and whole answers alike. What it has released never changes, is valid UTF-8, and concatenates to
// the final text.
//  - An incomplete UTF-8 character at the end is held back until it is complete; bytes that cannot become
//  valid turn
//    into U+FFFD, as Python's errors="replace" does.
//  - A suffix that may begin a stop string is held back until that is refuted. A stop string is found
//  anywhere, also
//    inside a token; the text ends right before it (or after it with include_stop). Of several the one that
//    ends first counts, and of those the longest: so the text does not depend on how it was cut into tokens.
class TextAssembler {
 public:
  struct Options {
    std::vector<std::string> stop = {};  // non-empty strings, at most 16 (checked by the caller)
    bool include_stop = false;
    bool special = false;  // keep control tokens' text
    // The tokens are a text of their own, not the continuation of a prompt: the space that SentencePiece puts
    // in front is dropped.
    bool starts_text = false;
  };
  TextAssembler(const Tokenizer& tokenizer, Options options);

  // Adds one token; appends newly released text to *released. Returns the index of the stop string that was
  // completed, or -1. After a match nothing more may be pushed.
  int push(TokenId token, std::string* released);

  // The generation has ended without a stop match: releases what was held back (an incomplete character as
  // U+FFFD).
  void finish(std::string* released);

 private:
  void take_characters();
  int completed_stop(char c);
  size_t longest_match() const;
  void release_all_but(size_t kept, std::string* released);

  const Tokenizer& tokenizer_;
  Options options_;
  std::vector<StopMatcher> stops_;
  std::string held_;     // valid text not yet released (may begin a stop string)
  std::string partial_;  // bytes of an incomplete character
  bool first_text_ = true;
  bool stopped_ = false;
};

}  // namespace kvasir
