#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "decoding/drafter.h"
#include "kvcache/block_table.h"

namespace kvasir {

struct Sequence;

// A sequence's neighbours in a list that is threaded through its members.
struct SequenceLinks {
  Sequence* previous = nullptr;
  Sequence* next = nullptr;
};
struct SequenceList {
  Sequence* first = nullptr;
  Sequence* last = nullptr;
};

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
  int32_t priority = 0;  // the lower is handled earlier
  uint32_t user = 0;     // whose it is: FairQueue::find_user()
  uint32_t slots = 1;    // sequences that it will become: n until the prompt is computed and the choices part
  std::vector<TokenId> tokens;
  uint32_t prompt_length;
  uint32_t computed = 0;  // tokens whose K and V are stored; at most tokens.size()
  BlockTable table;

  double most_output = 0;  // tokens that all its slots may generate together; for estimates only

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
  bool urgent = false;     // others of better priority have overtaken it often enough: goes before all
  uint32_t scheduled = 0;  // rows in the plan of this step
  uint32_t charged = 0;    // known tokens whose computation its user has been charged for, or got for nothing
  Sequence* leader = nullptr;  // computes a prefix that this one waits for,
  uint32_t leader_tokens = 0;  // until it has computed so many tokens
  SequenceList followers;      // those that wait for this one, by leader_tokens; linked by `by_rank`
  SequenceLinks by_rank, by_age;

  // Priority as it counts now.
  int32_t rank() const { return urgent ? INT32_MIN : priority; }
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
