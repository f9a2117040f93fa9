#include "decoding/continuation_vote.h"

namespace kvasir {
namespace {

// Token number i of the voter's continuation, or kNoToken where it knows none. Voters that run on end where
// the draft begins, and `next` is before `end`, so only tokens already drafted are read.
TokenId foresees(const Voter& voter, uint32_t i, const Draft& draft) {
  const auto known = static_cast<size_t>(voter.end - voter.next);
  if (i < known) return voter.next[i];
  return voter.runs_on && known > 0 ? draft.tokens[i - known] : kNoToken;
}

struct Ballot {
  TokenId winner = kNoToken;
  float weight = 0;
  float total = 0;
};

Ballot count_votes(std::span<const Voter> voters, uint32_t i, const Draft& draft) {
  Ballot ballot;
  for (size_t v = 0; v < voters.size(); ++v) {
    const TokenId token = foresees(voters[v], i, draft);
    if (token == kNoToken) continue;
    ballot.total += voters[v].weight;
    if (token == ballot.winner) continue;
    // Those before v voted for others, or a token that has already been counted and lost.
    float weight = 0;
    for (size_t u = v; u < voters.size(); ++u)
      if (foresees(voters[u], i, draft) == token) weight += voters[u].weight;
    if (weight > ballot.weight) ballot.winner = token, ballot.weight = weight;
  }
  return ballot;
}

}  // namespace

VoteResult vote_continuation(std::span<Voter> voters, const VoteRule& rule, uint32_t most, Draft& draft) {
  VoteResult result;
  float path = 1, doubt = rule.doubt;
  while (draft.size < most) {
    const Ballot ballot = count_votes(voters, draft.size, draft);
    if (ballot.winner == kNoToken) break;
    const float share = ballot.weight / (ballot.total + doubt);
    if (draft.size == 0) result.first_share = share;
    path *= share;
    if (share < rule.min_share || path < rule.min_path) break;
    size_t kept = 0;
    for (const Voter& voter : voters)
      if (foresees(voter, draft.size, draft) == ballot.winner) voters[kept++] = voter;
    voters = voters.first(kept);
    draft.add(ballot.winner);
    doubt *= rule.doubt_decay;
  }
  return result;
}

}  // namespace kvasir
