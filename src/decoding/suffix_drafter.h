#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "decoding/context_tree.h"
#include "decoding/drafter.h"
#include "decoding/output_store.h"

namespace kvasir {

struct SuffixOptions {
  static constexpr uint32_t kMostVoters = 32;  // bound of voters

  uint32_t min_match = 1;   // tokens; at least 1
  uint32_t voters = 32;     // places that are asked, the most similar ones, of the sequence and of the store
  float gain = 2;           // every further token in which a place agrees multiplies its weight by this
  float doubt = 8;          // what none of them foresees weighs as this many places that agree in no token
  float min_path = 0.15f;   // the draft ends where the product of the shares of the votes falls below this
  float length_factor = 2;  // and at this many times the length of the match
  size_t shared_bytes = 0;  // of past outputs; 0: none are kept
};

// Suffix decoding (Oliaro et al., arXiv 2411.04975): every place of the sequence that looks like its end says
// how it goes on, by its weight, and the draft follows the greatest share of the weights, as far as it is
// likely and the match is long. Places stand in a ContextTree, which holds what a suffix tree does; instead
// of the counts at one depth of it, all depths vote, the longer matches with more weight (as contexts are
// mixed in prediction by partial matching). The share of the votes so estimates the probability of the token.
//
// With shared_bytes, places in past outputs vote too: those of sequences with the same cache salt, which
// divides them as it divides what was computed for prefixes.
//
// `evidence` is the class of the first token's share: from 0, 0.25, 0.4, 0.6, 0.85, 0.96, 0.998 and 0.99999.
// (In 50 greedy answers of SmolLM2-135M and Qwen2.5-Coder-0.5B the first token was right in 16, 28, 36, 62,
// 77, 87, 91 and 97 % of the drafts of these classes.)
//
// A slot takes 16 bytes a token (20 where outputs are kept), all of it when it is opened. New tokens are
// indexed by the next propose(), each once.
class SuffixDrafter : public Drafter {
 public:
  explicit SuffixDrafter(uint32_t slots, SuffixOptions options = {});

  std::string_view name() const override { return options_.shared_bytes > 0 ? "outputs" : "suffix"; }
  DraftChances chances() const override;
  void open(uint32_t slot, uint32_t max_tokens) override;
  // Keeps the output as far as propose() saw it, where outputs are kept.
  void close(uint32_t slot) override;
  void propose(std::span<DraftJob> jobs) override;

  const OutputStore& store() const { return store_; }
  // Held now by all slots, without the store.
  size_t bytes() const;

 private:
  struct Slot {
    AlignedBuffer memory;
    ContextTree places;
    // Where outputs are kept: the salt that the first job named, and the output so far.
    std::string tenant;
    bool has_tenant = false;
    std::span<TokenId> output;
    uint32_t max_tokens = 0;
    uint32_t indexed = 0;
    uint32_t output_kept = 0;
    bool open = false;
  };
  struct Places;

  void update(Slot& slot, const DraftJob& job) const;
  void keep_output(Slot& slot, const DraftJob& job) const;
  void gather(const ContextTree& tree, std::span<const TokenId> text, bool own,
              std::span<const TokenId> known, Places& places) const;
  void draft(const Slot& slot, const DraftJob& job) const;

  SuffixOptions options_;
  std::array<float, ContextTree::kDepth + 1> fading_;  // gain to the power of -i
  OutputStore store_;
  std::vector<Slot> slots_;
};

}  // namespace kvasir
