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
  float doubt = 2;          // what none of them foresees weighs as this many places that agree in no token
  float min_path = 0.1f;    // the draft ends where the product of the shares of the votes falls below this
  float length_factor = 4;  // and at this many times the length of the match
  size_t shared_bytes = 0;  // of past outputs, by tenant; 0: none are kept
};

// Suffix decoding (Oliaro et al., arXiv 2411.04975): every place of the sequence that looks like its end says
// how it goes on, by its weight, and the draft follows the greatest share of the weights, as far as it is
// likely and the match is long. Places stand in a ContextTree, which holds what a suffix tree does; instead
// of the counts at one depth of it, all depths vote, the longer matches with more weight (as contexts are
// mixed in prediction by partial matching). The share of the votes so estimates the probability of the token.
//
// With shared_bytes, places in past outputs of the same tenant vote too.
//
// `evidence` is the class of the first token's share: see evidence_of() in the .cc.
//
// A slot takes 16 bytes a token (20 with a tenant), all of it when it is opened. New tokens are indexed by
// the next propose(), each once.
class SuffixDrafter : public Drafter {
 public:
  explicit SuffixDrafter(uint32_t slots, SuffixOptions options = {});

  std::string_view name() const override { return "suffix"; }
  void open(uint32_t slot, uint32_t max_tokens) override { open_for(slot, max_tokens, {}); }
  // As open(); the output, as far as propose() sees it, is kept for the tenant when the slot is closed, and
  // those kept before are read. An empty name is nobody's: nothing is kept or read.
  void open_for(uint32_t slot, uint32_t max_tokens, std::string_view tenant);
  void close(uint32_t slot) override;
  void propose(std::span<DraftJob> jobs) override;

  const OutputStore& store() const { return store_; }
  // Held now by all slots, without the store.
  size_t bytes() const;

 private:
  struct Slot {
    AlignedBuffer memory;
    ContextTree places;
    std::span<TokenId> output;  // of a tenant
    std::string tenant;
    uint32_t max_tokens = 0;
    uint32_t indexed = 0;
    uint32_t output_kept = 0;
    bool open = false;
  };
  struct Places;

  void update(Slot& slot, const DraftJob& job);
  void gather(const ContextTree& tree, std::span<const TokenId> text, bool own,
              std::span<const TokenId> known, Places& places) const;
  void draft(const Slot& slot, const DraftJob& job) const;

  SuffixOptions options_;
  std::array<float, ContextTree::kDepth + 1> fading_;  // gain to the power of -i
  OutputStore store_;
  std::vector<Slot> slots_;
};

}  // namespace kvasir
