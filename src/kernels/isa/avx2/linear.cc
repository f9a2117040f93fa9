#include "kernels/isa/avx2/dots.h"
#include "kernels/isa/avx2/linear_any.h"
#include "kernels/isa/linear_functions.h"

namespace kvasir::avx2 {

void linear(const LinearArgs& args) {
  any_linear<MaddubsDots>(args);
}

}  // namespace kvasir::avx2
