#pragma once

#include <cstdint>

namespace kvasir {

inline constexpr uint32_t kMostExperts = 1024;    // of a layer
inline constexpr uint32_t kMostExpertsUsed = 64;  // by a row

// What a router makes of the logits of a row: how experts are chosen and what their results count.
struct RouterShape {
  enum class Score : uint8_t {
    kSoftmax,  // over all experts (Switch, arXiv 2101.03961; Mixtral, arXiv 2401.04088)
    kSigmoid,  // of each alone (DeepSeek-V3, arXiv 2412.19437)
  };
  uint32_t experts = 0;
  uint32_t used = 0;  // chosen per row
  Score score = Score::kSoftmax;
  bool normalised = false;  // the chosen ones' weights are divided by their sum
  float scale = 1.0f;       // then multiplied
  // Experts stand in so many groups of equal size, and those of the best `groups_used` may be chosen. A
  // group is as good as its best expert, or with kSigmoid as the sum of its best two (DeepSeek-V2, arXiv
  // 2405.04434, section 2.1.2; V3).
  uint32_t groups = 1;
  uint32_t groups_used = 1;
};

// The experts of one row, best first, ties to the lowest id, and what their results are multiplied with. The
// same bits on every instruction set (docs/numerics.md, rule 6). `bias`, null or [experts], is added to the
// scores for the choice alone. NaN ranks below every number. Allocates nothing.
void choose_experts(const RouterShape& shape, const float* logits, const float* bias, uint32_t* experts,
                    float* weights);

// 1 / (1 + exp(-x))
float sigmoid(float x);

}  // namespace kvasir
