#pragma once

#include <array>
#include <cstdint>

namespace kvasir {

// Philox 4x32-10, a counter-based random generator (Salmon et al., SC 2011): the same key and counter give
// the same four words, whatever was drawn before. So a draw depends on what it is for, not on when it
// happens.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

}  // namespace kvasir
