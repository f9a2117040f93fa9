#include "kernels/isa/avx512/lanes.h"
#include "kernels/isa/float_functions.h"
#include "kernels/isa/vector_attention.h"

namespace kvasir::avx512 {

void attention(const AttentionArgs& args) {
  vec::attention<F32x16>(args);
}

}  // namespace kvasir::avx512
