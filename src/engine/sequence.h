#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "decoding/drafter.h"
#include "kvcache/block_table.h"

namespace kvasir {

// One running generation as the scheduler sees it: what is known, what is computed, and the blocks. Known
// tokens are the prompt and what was generated; the scheduler gives rows until the computed ones have caught
// up, and one row more for each token of a draft that is to be verified.
struct Sequence {
  Sequence(BlockTable blocks, std::vector<TokenId> known, uint32_t prompt)
      : tokens(std::move(known)), prompt_length(prompt), table(std::move(blocks)) {}

  enum class State : uint8_t { kWaiting, kRunning, kFinished };
  static constexpr uint32_t kNothing = UINT32_MAX;

  // Order of arrival, the request first and its choice second; the smaller is the older.
  std::pair<uint64_t, uint32_t> age = {0, 0};
  uint32_t slots = 1;  // sequences that it will become: n until the prompt is computed and the choices part
  std::vector<TokenId> tokens;
  uint32_t prompt_length;
  uint32_t computed = 0;  // tokens whose K and V are stored; at most tokens.size()
  BlockTable table;

  // Prompt rows from this position on still have to be scored (their logits are wanted); kNothing when none
  // has.
  uint32_t score_from = kNothing;
  // Prompt tokens that the prefix cache served at first admission.
  uint32_t cached_tokens = 0;

  // Guesses of what follows the known tokens, for the next step alone; only while a single token is pending.
  // A drafter that is asked once there is room for its guesses leaves the tokens open at first.
  Draft draft;

  // The scheduler's own.
  State state = State::kWaiting;
  bool admitted_before = false;
  uint32_t scheduled = 0;            // rows in the plan of this step
  const Sequence* leader = nullptr;  // computes a prefix that this one waits for,
  uint32_t leader_tokens = 0;        // until it has computed so many tokens

  uint32_t known() const { return static_cast<uint32_t>(tokens.size()); }
  uint32_t pending() const { return known() - computed; }
  // Known, or guessed.
  TokenId token_at(uint32_t position) const {
    return position < known() ? tokens[position] : draft.tokens[position - known()];
  }
  // The first position whose logits are wanted: the last known token's, or earlier prompt rows to be scored.
  uint32_t logits_from() const { return score_from < prompt_length ? score_from : known() - 1; }
};

}  // namespace kvasir
