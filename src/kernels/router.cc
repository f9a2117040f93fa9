#include "kernels/router.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <span>

#include "kernels/generic/math.h"
#include "kernels/generic/reduce.h"
#include "kernels/generic/scalar_float.h"

namespace kvasir {
namespace {

float exp1(float x) {
  return math::exp(scalar::Float1{x}).v;
}

// Ranks by score, then by the lower index, as one integer: larger is better. NaN is the least.
uint64_t rank_of(float score, uint32_t index) {
  uint32_t key = 0;
  if (!std::isnan(score)) {
    const auto bits = std::bit_cast<uint32_t>(score + 0.0f);  // one zero
    key = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  }
  return uint64_t{key} << 32 | (UINT32_MAX - index);
}

uint32_t index_of(uint64_t rank) {
  return UINT32_MAX - static_cast<uint32_t>(rank);
}

// The best of what was added, best first.
class Best {
 public:
  explicit Best(uint32_t wanted) : wanted_(wanted) {}

  void add(uint64_t rank) {
    if (count_ == wanted_ && rank < ranks_[count_ - 1]) return;
    uint32_t at = count_ < wanted_ ? count_++ : count_ - 1;
    for (; at > 0 && ranks_[at - 1] < rank; --at) ranks_[at] = ranks_[at - 1];
    ranks_[at] = rank;
  }
  std::span<const uint64_t> list() const { return {ranks_.data(), count_}; }

 private:
  uint32_t wanted_;
  uint32_t count_ = 0;
  std::array<uint64_t, kMostExpertsUsed> ranks_;
};

// A group's worth, from the scores of its members.
float group_score(const RouterShape& shape, const float* scores, uint32_t size) {
  float first = -math::kInfinity, second = -math::kInfinity;
  for (uint32_t i = 0; i < size; ++i) {
    if (scores[i] > first) {
      second = first;
      first = scores[i];
    } else if (scores[i] > second) {
      second = scores[i];
    }
  }
  return shape.score == RouterShape::Score::kSigmoid && size > 1 ? first + second : first;
}

void choose(const RouterShape& shape, const float* scores, uint32_t* experts) {
  const uint32_t size = shape.experts / shape.groups;
  Best groups(shape.groups_used);
  for (uint32_t g = 0; g < shape.groups; ++g)
    groups.add(rank_of(shape.groups > 1 ? group_score(shape, scores + g * size, size) : 0.0f, g));
  Best best(shape.used);
  for (const uint64_t group : groups.list()) {
    const uint32_t first = index_of(group) * size;
    for (uint32_t e = first; e < first + size; ++e) best.add(rank_of(scores[e], e));
  }
  for (const uint64_t rank : best.list()) *experts++ = index_of(rank);
}

float largest(const float* x, uint32_t n) {
  float most = x[0];
  for (uint32_t i = 1; i < n; ++i) most = most < x[i] ? x[i] : most;
  return most;
}

// Sixteen strided partial sums and their tree.
float sum_of_exp(const float* logits, uint32_t n, float most) {
  float partials[scalar::kPartials] = {};
  for (uint32_t i = 0; i < n; ++i) partials[i % scalar::kPartials] += exp1(logits[i] - most);
  return scalar::tree_sum(partials);
}

}  // namespace

float sigmoid(float x) {
  return 1.0f / (1.0f + exp1(-x));
}

void choose_experts(const RouterShape& shape, const float* logits, const float* bias, uint32_t* experts,
                    float* weights) {
  std::array<float, kMostExperts> scores;
  const bool of_softmax = shape.score == RouterShape::Score::kSoftmax;
  const uint32_t n = shape.experts;
  float most = 0.0f, sum = 0.0f;
  if (of_softmax) {
    most = largest(logits, n);
    if (bias != nullptr || !shape.normalised) sum = sum_of_exp(logits, n, most);
  }
  for (uint32_t e = 0; e < n; ++e) {
    // Without a bias, softmax ranks as the logits do.
    scores[e] = !of_softmax ? sigmoid(logits[e]) : bias != nullptr ? exp1(logits[e] - most) / sum : logits[e];
    if (bias != nullptr) scores[e] += bias[e];
  }
  choose(shape, scores.data(), experts);
  if (of_softmax && shape.normalised) {  // of the chosen ones alone: the others cancel out
    most = logits[experts[0]];
    for (uint32_t i = 1; i < shape.used; ++i) most = std::max(most, logits[experts[i]]);
  }
  float chosen = 1e-20f;  // no division by zero where all underflow
  for (uint32_t i = 0; i < shape.used; ++i) {
    const float logit = logits[experts[i]];
    weights[i] = of_softmax ? exp1(logit - most) : sigmoid(logit);
    chosen += weights[i];
  }
  if (shape.normalised || of_softmax) {
    const float divisor = shape.normalised ? chosen : sum;
    for (uint32_t i = 0; i < shape.used; ++i) weights[i] /= divisor;
  }
  if (shape.scale != 1.0f)
    for (uint32_t i = 0; i < shape.used; ++i) weights[i] *= shape.scale;
}

}  // namespace kvasir
