#pragma once

#include "base/ids.h"

namespace kvasir {

// A token still in the running, with its logit.
struct Candidate {
  float x = 0.0f;
  TokenId id = kNoToken;
};

// The order in which tokens are preferred: by logit, ties to the lower id.
inline bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.x > b.x || (a.x == b.x && a.id < b.id);
}

}  // namespace kvasir
