#include "decoding/rejection.h"

#include <algorithm>

#include "base/check.h"
#include "base/philox.h"
#include "decoding/candidates.h"
#include "decoding/det_math.h"

namespace kvasir {
namespace {

double uniform(const RaceKey& key) {
  const auto words = philox4x32({0, key.position, key.choice, key.stream},
                                {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
  return (static_cast<double>(words[0]) + 0.5) * 0x1p-32;
}

double odds_of(DraftOdds q, TokenId token, TokenId guess) {
  if (q.empty()) return token == guess ? 1.0 : 0.0;
  return static_cast<size_t>(token) < q.size() ? static_cast<double>(q[static_cast<size_t>(token)]) : 0.0;
}

}  // namespace

TokenId accept_or_redraw(std::vector<Candidate>& survivors, DraftOdds q, TokenId guess, RaceKey key) {
  CHECK(!survivors.empty());
  const double total = static_cast<double>(total_mass(survivors)) / kMassOne;
  const auto found =
      std::find_if(survivors.begin(), survivors.end(), [&](const Candidate& c) { return c.id == guess; });
  const double p = found == survivors.end() ? 0 : det_exp(static_cast<double>(found->x)) / total;
  key.stream = kAcceptStream;
  if (uniform(key) * odds_of(q, guess, guess) < p) return guess;

  double most = 0;
  for (const Candidate& c : survivors)
    most = std::max(most, det_exp(static_cast<double>(c.x)) / total - odds_of(q, c.id, guess));
  if (most <= 0) return guess;  // p is q but for rounding
  size_t kept = 0;
  for (const Candidate& c : survivors) {
    const double left = det_exp(static_cast<double>(c.x)) / total - odds_of(q, c.id, guess);
    const double share = left / most;
    if (share > 1e-300) survivors[kept++] = {static_cast<float>(det_log(share)), c.id};
  }
  survivors.resize(kept);
  key.stream = kRedrawStream;
  return race(survivors, key);
}

}  // namespace kvasir
