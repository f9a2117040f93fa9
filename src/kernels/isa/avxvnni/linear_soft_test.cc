#include "kernels/isa/avx2/linear_any.h"
#include "kernels/isa/avxvnni/vnni_dots.h"
#include "kernels/isa/test_variants.h"

namespace kvasir::avxvnni {

void linear_soft(const LinearArgs& args) {
  avx2::any_linear<VnniDots>(args);
}

}  // namespace kvasir::avxvnni
