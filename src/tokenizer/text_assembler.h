#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace kvasir {

// Turns one generation's tokens into text, incrementally: the only place where text is put together, for streamed and
// whole answers alike. What it has released never changes, is valid UTF-8, and concatenates to the final text.
//  - An incomplete UTF-8 character at the end is held back until it is complete; bytes that cannot become valid turn
//    into U+FFFD, as Python's errors="replace" does.
//  - A suffix that may begin a stop string is held back until that is refuted. A stop string is found anywhere, also
//    inside a token; the text ends right before it (or after it with include_stop).
class TextAssembler {
 public:
  struct Options {
    std::vector<std::string> stop;  // non-empty strings, at most 16 (checked by the caller)
    bool include_stop = false;
    bool special = false;           // keep control tokens' text
  };
  TextAssembler(const Tokenizer& tokenizer, Options options);

  // Adds one token; appends newly released text to *released. Returns the index of the stop string that was completed,
  // or -1. After a match nothing more may be pushed.
  int push(TokenId token, std::string* released);

  // The generation has ended without a stop match: releases what was held back (an incomplete character as U+FFFD).
  void finish(std::string* released);

 private:
  const Tokenizer& tokenizer_;
  Options options_;
  std::string held_;     // valid text not yet released (may begin a stop string)
  std::string partial_;  // bytes of an incomplete character
  bool first_text_ = true;
};

}  // namespace kvasir
