#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "decoding/race.h"

namespace kvasir {

// Streams of random numbers (RaceKey::stream): the ordinary draw, whether a guess is accepted, and the draw
// in place of one that is not. They must not share a number: a guess may have been drawn with that of stream
// 0.
inline constexpr uint32_t kDrawStream = 0, kAcceptStream = 1, kRedrawStream = 2;

// What a drafter gave a token when it drew its guess: a probability per token id, of the whole vocabulary.
// Empty: the guess was no draw (all its probability was on it).
using DraftOdds = std::span<const float>;

// A token drawn from p, the distribution over `survivors` (probability of each in proportion to e^x, x <= 0,
// the largest near 0), by way of a guess drawn from q: the guess itself with probability min(1, p / q), else
// a token from the distribution in proportion to max(0, p - q). Over all guesses that is p exactly
// (Leviathan, Kalman and Matias, arXiv 2211.17192, appendix A.1; Chen et al., arXiv 2302.01318). The token
// equals the guess if and only if that was accepted. Needs no order of the survivors; changes them.
TokenId accept_or_redraw(std::vector<Candidate>& survivors, DraftOdds q, TokenId guess, RaceKey key);

}  // namespace kvasir
