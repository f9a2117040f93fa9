#pragma once

namespace kvasir {

// Prints the failed condition with its place and aborts. For faults of the program only: input can never
// reach it.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace kvasir

#define CHECK(condition)                                      \
  do {                                                        \
    if (!(condition)) [[unlikely]]                            \
      ::kvasir::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)

// Asserted in debug builds only: for the step loop and the kernels.
#ifdef KVASIR_DEBUG_CHECKS
#define DCHECK(condition) CHECK(condition)
#else
#define DCHECK(condition) \
  do {                    \
  } while (false)
#endif
