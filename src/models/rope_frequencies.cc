#include "models/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kvasir {
namespace {

// The pair, as a real number, that turns `rotations` times over the original context.
double pair_of(double rotations, uint32_t rope_dim, double base, double context) {
  return rope_dim * std::log(context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(base));
}

// How much of each pair is slowed: 0 up to the pair of beta_fast, 1 from that of beta_slow on.
class YarnRamp {
 public:
  YarnRamp(uint32_t rope_dim, double base, const RopeScaling& s) {
    const double context = s.original_context, last = rope_dim - 1.0;
    const double low = pair_of(s.beta_fast, rope_dim, base, context);
    const double high = pair_of(s.beta_slow, rope_dim, base, context);
    low_ = std::max(0.0, s.whole_pairs ? std::floor(low) : low);
    high_ = std::min(last, s.whole_pairs ? std::ceil(high) : high);
  }
  double at(uint32_t pair) const {
    return std::clamp((pair - low_) / std::max(0.001, high_ - low_), 0.0, 1.0);
  }

 private:
  double low_, high_;
};

}  // namespace

std::vector<double> rope_frequencies(uint32_t rope_dim, double base, const RopeScaling& scaling,
                                     const float* factors) {
  const bool yarn = scaling.yarn_factor != 1.0;
  const YarnRamp ramp(rope_dim, base, scaling);
  std::vector<double> out(rope_dim / 2);
  for (uint32_t i = 0; i < out.size(); ++i) {
    const double slowed = yarn ? ramp.at(i) : 0.0;
    const double plain = std::pow(base, -2.0 * i / rope_dim) / scaling.linear_factor /
                         (factors != nullptr ? factors[i] : 1.0f);
    out[i] = plain * (1 - slowed) + plain / scaling.yarn_factor * slowed;
  }
  return out;
}

void rope_factors(int32_t position, std::span<const double> frequencies, double magnitude, float* out) {
  const size_t half = frequencies.size();
  for (size_t i = 0; i < half; ++i) {
    const double angle = position * frequencies[i];
    out[i] = static_cast<float>(std::cos(angle) * magnitude);
    out[half + i] = static_cast<float>(std::sin(angle) * magnitude);
  }
}

double yarn_magnitude(double factor) {
  return factor <= 1 ? 1.0 : 0.1 * std::log(factor) + 1;
}

}  // namespace kvasir
