#include "decoding/drafter.h"

#include <algorithm>

namespace kvasir {

uint8_t grade_of(float lead) {
  constexpr float kFrom[Draft::kGrades - 1] = {0.25f, 0.5f, 1, 1.75f, 3, 4.5f, 7};
  return static_cast<uint8_t>(std::ranges::count_if(kFrom, [lead](float from) { return lead >= from; }));
}

bool DraftStop::ends(const Draft& draft) const {
  if (!draft.graded || draft.size == 0) return false;
  double reach = 1;
  for (uint32_t i = 0; i < draft.size; ++i) reach *= right[draft.grades[i]];
  return reach < least;
}

}  // namespace kvasir
