#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace kvasir {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "kvasir: internal check failed: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace kvasir
