#pragma once

#include <cstdint>
#include <span>

#include "decoding/sampler_scratch.h"

namespace kvasir {

// What a draw is for. Together with the token it names the random number, so no draw depends on another.
struct RaceKey {
  uint64_t seed = 0;
  uint32_t position = 0;
  uint32_t choice = 0;
  uint32_t stream = 0;  // of decoding/rejection.h
};

// An exponential race: token i finishes at time -log(1 - v_i) / p_i, v_i in (0, 1), and the first wins, which
// happens with probability p_i / sum(p) (the Gumbel-max trick written with exponentials). v_i is (w + 1/2)
// 2^-32 where w is word i mod 4 of Philox(key = seed, counter = (i / 4, position, choice, stream)). Here p_i
// = e^x_i with x_i <= 0 and some x_i near 0 (temperature already applied, the maximum taken off). Ties to the
// lowest id.

// Over the tokens listed, which are not none.
TokenId race(std::span<const Candidate> runners, const RaceKey& key);

// Over every token of the row with x >= floor; `best` is the row's argmax, with x = 0. A linear pass that
// works out a finishing time only for tokens that could still win: equal to race() over the same tokens.
TokenId race_row(std::span<const float> row, TokenId best, float floor, const RaceKey& key);

}  // namespace kvasir
