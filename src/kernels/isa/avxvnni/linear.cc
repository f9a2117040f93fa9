#include "kernels/isa/avx2/linear_any.h"
#include "kernels/isa/avxvnni/vnni_dots.h"
#include "kernels/isa/linear_functions.h"

// AVX2's kernels with VPDPBUSD in its VEX encoding. That encoding has not run: the machine these kernels were
// written on has the EVEX encoding only, with which linear_evex_test.cc builds them for the tests.
namespace kvasir::avxvnni {

void linear(const LinearArgs& args) {
  avx2::any_linear<VnniDots>(args);
}

}  // namespace kvasir::avxvnni
