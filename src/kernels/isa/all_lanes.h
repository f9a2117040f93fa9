#pragma once

namespace kvasir {

// Stands for a mask that chooses every lane, where that is known to the compiler: AVX2's masked stores take a
// dozen cycles each on AMD's processors, whatever the mask.
struct AllLanes {};

}  // namespace kvasir
