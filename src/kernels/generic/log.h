#pragma once

namespace kvasir::math {

// Natural logarithm of a float >= 0, in double arithmetic from one translation unit: for the one value per
// row that log_sum_exp needs, the same on every instruction set. log(0) is -infinity; infinity and NaN map to
// themselves.
float log_nonnegative(float x);

}  // namespace kvasir::math
