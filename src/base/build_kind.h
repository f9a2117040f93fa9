#pragma once

namespace kvasir {

// Whether a sanitiser watches this build, and it is many times slower: for tests that need real models.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSlowBuild = true;
#else
inline constexpr bool kSlowBuild = false;
#endif

}  // namespace kvasir
