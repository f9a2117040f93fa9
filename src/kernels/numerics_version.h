#pragma once

#include <cstdint>

namespace kvasir {

// Which arithmetic the K and V of a token come from (docs/numerics.md): one more whenever a change moves any
// bit of them or how a KV block keeps them, so that blocks that were saved by another version are not taken
// for ours. tests/numerics_version_test.cc fails when a bit moved and this did not.
inline constexpr uint32_t kNumericsVersion = 1;

}  // namespace kvasir
