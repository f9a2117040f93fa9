#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "decoding/drafter.h"

namespace kvasir {

using Tokens = std::vector<TokenId>;

// One draft for one sequence, as tests want it.
inline Draft draft_for(Drafter& drafter, uint32_t slot, std::span<const TokenId> known, uint32_t most,
                       uint32_t output_tokens = 0, std::string_view salt = {}) {
  Draft draft;
  DraftJob job{.slot = slot,
               .known = known,
               .most = most,
               .output_tokens = output_tokens,
               .cache_salt = salt,
               .draft = &draft};
  drafter.propose({&job, 1});
  return draft;
}

inline Tokens drafted(Drafter& drafter, uint32_t slot, std::span<const TokenId> known, uint32_t most,
                      uint32_t output_tokens = 0, std::string_view salt = {}) {
  const Draft draft = draft_for(drafter, slot, known, most, output_tokens, salt);
  return {draft.list().begin(), draft.list().end()};
}

}  // namespace kvasir
