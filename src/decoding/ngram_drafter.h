#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "decoding/drafter.h"

namespace kvasir {

struct NgramOptions {
  static constexpr uint32_t kLongestMatch = 16;  // bound of max_match
  static constexpr uint32_t kMostVoters = 32;    // bound of occurrences

  uint32_t min_match = 2;     // tokens that must have occurred before; at least 1
  uint32_t max_match = 8;     // longest n-gram with an index of its own
  uint32_t occurrences = 16;  // how many of the latest occurrences are looked at
  float min_share = 0.51f;    // the chain ends where fewer of them agree; of two that differ none is right
};

// Prompt lookup: what a sequence ends with has occurred before, and goes on as it did then. (Saxena's
// prompt-lookup decoding; "n-gram" of vLLM and llama.cpp.)
//
// The longest n-gram that ends the sequence and occurred before counts, of max_match tokens down to
// min_match; if it has max_match, then of its latest occurrences those that agree with the sequence furthest
// back (to 4 * max_match tokens). These vote for what follows; of equals the latest wins.
//
// `evidence` is 0 where voters disagree about the first token. Where all agree, a match that occurred several
// times is as sure as one four times as long that occurred once; by that length the classes 1 to 7 begin at
// 1, 3, 4, 8, 12, 16 and 32 tokens. (In 50 greedy answers of SmolLM2-135M and Qwen2.5-Coder-0.5B the first
// token was right after matches of 2, 3, 4, 8, 12, 16 to 23 and at least 32 tokens that occurred once in 52,
// 69, 81, 84, 89, 95 and 99 %; after 2, 4 and 8 that occurred several times in 83, 94 and 95 %.)
//
// A slot takes bytes_per_token() times its tokens, all of it when it is opened. New tokens are indexed by the
// next propose(), each once.
class NgramDrafter : public Drafter {
 public:
  explicit NgramDrafter(uint32_t slots, NgramOptions options = {});

  std::string_view name() const override { return "ngram"; }
  DraftChances chances() const override;
  void open(uint32_t slot, uint32_t max_tokens) override;
  void close(uint32_t slot) override;
  void propose(std::span<DraftJob> jobs) override;

  // 8 for each indexed length: 56 as they are.
  size_t bytes_per_token() const { return 2 * sizeof(uint32_t) * lengths_; }
  // Held now by all slots.
  size_t bytes() const;

 private:
  // Hash chains, one set for each length n. `latest[(n - min_match) * max_tokens + hash]` is one more than
  // the position where the latest n-gram of that hash ends, 0 if there is none; `earlier[position * lengths +
  // n - min_match]` leads from one that ends at `position` to the one before.
  struct Slot {
    AlignedBuffer memory;
    std::span<uint32_t> latest, earlier;
    uint32_t max_tokens = 0;
    uint32_t indexed = 0;
    bool open = false;
  };
  struct Occurrences;

  void index(Slot& slot, std::span<const TokenId> known) const;
  void find(const Slot& slot, std::span<const TokenId> known, Occurrences& found) const;
  void draft(Slot& slot, const DraftJob& job) const;

  NgramOptions options_;
  uint32_t lengths_;
  std::vector<Slot> slots_;
};

}  // namespace kvasir
