#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace kvasir {

// How often each token occurred in a sequence, for the tokens that did: an open-addressing table that grows
// with the number of distinct tokens, not with the vocabulary.
class TokenCounts {
 public:
  struct Entry {
    TokenId token = kNoToken;
    uint32_t in_output = 0;  // 0: in the prompt only
  };

  void add_prompt(TokenId token) { slot(token); }
  void add_output(TokenId token) { ++slot(token).in_output; }

  template <class F>
  void for_each(F&& f) const {
    for (const Entry& e : table_)
      if (e.token != kNoToken) f(e);
  }

 private:
  Entry& slot(TokenId token);
  Entry& probe(TokenId token);
  void grow();

  std::vector<Entry> table_;  // size 0 or a power of two, at most half full
  size_t used_ = 0;
};

}  // namespace kvasir
