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
  float min_share = 0.5f;     // the chain ends where fewer of them agree
};

// Prompt lookup: what a sequence ends with has occurred before, and goes on as it did then. (Saxena's
// prompt-lookup decoding; "n-gram" of vLLM and llama.cpp.)
//
// The longest n-gram that ends the sequence and occurred before counts, of max_match tokens down to
// min_match; if it has max_match, then of its latest occurrences those that agree with the sequence furthest
// back (to 4 * max_match tokens). These vote for what follows; of equals the latest wins.
//
// `evidence` = 2 * length class + (1 if all voters agree on the first token). Length classes: shorter than 4
// tokens, than 6, than 4 * max_match, and that long: a sequence that copies or repeats itself.
//
// A slot takes bytes_per_token() times its tokens, all of it when it is opened. New tokens are indexed by the
// next propose(), each once.
class NgramDrafter : public Drafter {
 public:
  explicit NgramDrafter(uint32_t slots, NgramOptions options = {});

  std::string_view name() const override { return "ngram"; }
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
