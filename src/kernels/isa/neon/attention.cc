#include "kernels/isa/float_functions.h"
#include "kernels/isa/neon/lanes.h"
#include "kernels/isa/vector_attention.h"

namespace kvasir::neon {

void attention(const AttentionArgs& args) {
  vec::attention<F32x16>(args);
}

}  // namespace kvasir::neon
