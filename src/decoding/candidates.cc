#include "decoding/candidates.h"

#include <algorithm>
#include <limits>

#include "decoding/det_math.h"

namespace kvasir {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr size_t kBlock = 64;

// Sixteen lanes, so that the compiler can use vector registers.
float max_of_block(const float* x) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes];
  std::copy_n(x, kLanes, lanes);
  for (size_t i = kLanes; i < kBlock; i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
  float best = lanes[0];
  for (size_t j = 1; j < kLanes; ++j) best = std::max(best, lanes[j]);
  return best;
}

void fill_block_maxima(std::span<const float> row, std::vector<float>& maxima) {
  maxima.clear();
  size_t i = 0;
  for (; i + kBlock <= row.size(); i += kBlock) maxima.push_back(max_of_block(row.data() + i));
  if (i < row.size())
    maxima.push_back(*std::max_element(row.begin() + static_cast<std::ptrdiff_t>(i), row.end()));
}

}  // namespace

void gather_largest(std::span<const float> row, size_t k, SamplerScratch& scratch) {
  auto& out = scratch.candidates;
  out.clear();
  if (k == 0) return;
  fill_block_maxima(row, scratch.block_max);
  // k blocks have a token at or above the k-th largest block maximum, so the k best tokens are at or above
  // it.
  float floor = std::numeric_limits<float>::lowest();  // leaves out -infinity alone
  if (k <= scratch.block_max.size()) {
    scratch.ranks = scratch.block_max;
    const auto kth = scratch.ranks.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(scratch.ranks.begin(), kth, scratch.ranks.end(), std::greater<>());
    floor = std::max(floor, *kth);
  }
  for (size_t b = 0; b < scratch.block_max.size(); ++b) {
    if (scratch.block_max[b] < floor) continue;
    const size_t end = std::min(row.size(), (b + 1) * kBlock);
    for (size_t i = b * kBlock; i < end; ++i)
      if (row[i] >= floor) out.push_back({row[i], static_cast<TokenId>(i)});
  }
  keep_best(out, k);
}

void keep_best(std::vector<Candidate>& candidates, size_t k) {
  if (candidates.size() <= k) return;
  const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(k);
  std::nth_element(candidates.begin(), end, candidates.end(), ranks_before);
  candidates.resize(k);
}

uint64_t mass_of(float x) {
  return static_cast<uint64_t>(det_exp(static_cast<double>(x)) * kMassOne + 0.5);
}

uint64_t total_mass(std::span<const Candidate> candidates) {
  uint64_t sum = 0;
  for (const Candidate& c : candidates) sum += mass_of(c.x);
  return sum;
}

void keep_nucleus(std::vector<Candidate>& candidates, uint64_t target) {
  constexpr size_t kSortBelow = 64;
  size_t lo = 0, hi = candidates.size();
  uint64_t before = 0;  // mass of candidates[0, lo), all of which stay
  const auto at = [&](size_t i) { return candidates.begin() + static_cast<std::ptrdiff_t>(i); };
  while (hi - lo > kSortBelow) {
    const size_t mid = lo + (hi - lo) / 2;
    std::nth_element(at(lo), at(mid), at(hi), ranks_before);
    const uint64_t half = total_mass({candidates.data() + lo, mid - lo});
    if (before + half >= target) {
      hi = mid;
    } else {
      before += half;
      lo = mid;
    }
  }
  std::sort(at(lo), at(hi), ranks_before);
  while (lo < hi && before < target) before += mass_of(candidates[lo++].x);
  candidates.resize(std::max<size_t>(lo, std::min<size_t>(1, candidates.size())));
}

}  // namespace kvasir
