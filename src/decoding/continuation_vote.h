#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "decoding/drafter.h"

namespace kvasir {

// An earlier occurrence of what a sequence ends with, which says how the sequence may go on.
struct Voter {
  const TokenId* next = nullptr;  // the token that followed the occurrence
  const TokenId* end = nullptr;   // past the last token known there
  float weight = 1;
  // `end` is where the sequence itself ends: what follows is what is drafted now. A sequence that repeats
  // itself is so continued round and round, however short its period.
  bool runs_on = true;
};

struct VoteRule {
  float min_share = 0;    // the chain ends where the winner has less of the votes
  float min_path = 0;     // and where the product of the winners' shares falls below this
  float doubt = 0;        // weight of the votes for a token that no voter foresees
  float doubt_decay = 1;  // `doubt` is multiplied by this with every token drafted
};

struct VoteResult {
  float first_share = 0;  // the winner's part of the votes for the first token; 0 without voters
};

// Adds tokens to `draft` until it holds `most`: the one with the greatest weight among the voters, of equals
// that of the voter listed first; then only those that voted for it vote on. Reorders none, drops some.
// Expects draft to be empty; `most` is at most Draft::kMost. Takes O(most * voters * distinct tokens).
VoteResult vote_continuation(std::span<Voter> voters, const VoteRule& rule, uint32_t most, Draft& draft);

}  // namespace kvasir
