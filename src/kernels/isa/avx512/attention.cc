#include "kernels/isa/avx512/lanes.h"
#include "kernels/isa/float_functions.h"
#include "kernels/isa/vector_attention.h"

namespace kvasir::avx512 {

void attention(const AttentionArgs& args) {
  vec::attention<F32x16>(args);
}

void merge_attention(const float* partials, uint32_t count, uint32_t head_dim, float* out) {
  vec::merge_attention<F32x16>(partials, count, head_dim, out);
}

}  // namespace kvasir::avx512
