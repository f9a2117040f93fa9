#pragma once

#include <cstdint>
#include <functional>

namespace kvasir {

// (1 - a^(k+1)) / (1 - a), k + 1 for a = 1: tokens that a step emits on average when each of k drafted tokens
// is accepted with probability a, independently, and the target adds one. Leviathan, Kalman and Matias 2023
// (arXiv 2211.17192), equation 1. a in 0 .. 1. With k - 1 for k: (1 - a^k) / (1 - a), as engines count that
// do without the target's token after full acceptance.
double expected_tokens_per_step(double acceptance, double drafts);

// a (1 - a^k) / (1 - a): of these, the drafted ones.
double expected_accepted(double acceptance, uint32_t drafts);

// What a verification costs: seconds of a target step of m rows over those of a step of one row. V(1) = 1.
using VerifyCost = std::function<double(uint32_t rows)>;

// expected_tokens_per_step / (V(k+1) + k c): times faster than one token per step, c being the seconds of one
// draft token over those of a target step of one row. With V = 1 the improvement factor of Leviathan et al.,
// theorem 3.8. k = 0 gives 1.
double speculation_speedup(double acceptance, uint32_t drafts, double draft_cost, double verify_cost);

// The k of 0 .. most with the largest speed-up, the smallest of equals; 0: do not speculate.
struct DraftChoice {
  uint32_t drafts = 0;
  double speedup = 1;
};
DraftChoice best_drafts(double acceptance, double draft_cost, const VerifyCost& verify_cost, uint32_t most);

// V(m) = max(1, m / R): a step reads its weights in the time in which R rows are computed (roofline). R >= 1.
VerifyCost roofline_verify_cost(double rows_per_read);

}  // namespace kvasir
