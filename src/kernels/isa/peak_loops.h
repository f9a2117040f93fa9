#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/inline.h"
#include "kernels/peak.h"

// The loops of PeakTable over the vectors of an instruction set, which gives the operations: step(sum, a) is
// one more multiply-add of a chain, add(sum, p) one more vector read, and keep(v) makes the compiler believe
// that v is used and may have changed, at no cost. Included only by isa/<isa>/peak.cc; the operations are
// lambdas, so that each instruction set has its own copy.
namespace kvasir::peak {

// `Chains` sums (at most 16) that each wait only for their own last step, `rounds` times.
template <int Chains, class Sum, class Operand, class Step, class Keep>
KVASIR_INLINE void run_chains(uint64_t rounds, Sum zero, Operand a, Step step, Keep keep) {
  static_assert(Chains <= 16);
  Sum sums[Chains];
#pragma GCC unroll 16
  for (int i = 0; i < Chains; ++i) {
    sums[i] = zero;
    keep(sums[i]);  // chains that start alike would be one to the compiler
  }
  for (uint64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < Chains; ++i) sums[i] = step(sums[i], a);
    keep(a);
  }
#pragma GCC unroll 16
  for (int i = 0; i < Chains; ++i) keep(sums[i]);
}

// `Streams` runs of `part` bytes side by side, four vectors of each at a time into `Sums` sums.
template <int Streams, int Sums, class V, class Add, class Keep>
KVASIR_INLINE void read_streams(const std::byte* data, size_t part, V zero, Add add, Keep keep) {
  V sums[Streams][Sums];
#pragma GCC unroll 4
  for (int s = 0; s < Streams; ++s) {
#pragma GCC unroll 4
    for (int j = 0; j < Sums; ++j) sums[s][j] = zero;
  }
  for (size_t i = 0; i < part; i += 4 * sizeof(V)) {
#pragma GCC unroll 4
    for (int s = 0; s < Streams; ++s) {
      const std::byte* p = data + static_cast<size_t>(s) * part + i;
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sums[s][j % Sums] = add(sums[s][j % Sums], p + j * sizeof(V));
    }
  }
#pragma GCC unroll 4
  for (int s = 0; s < Streams; ++s) {
#pragma GCC unroll 4
    for (int j = 0; j < Sums; ++j) keep(sums[s][j]);
  }
}

// PeakTable::read.
template <int Sums, class V, class Add, class Keep>
KVASIR_INLINE void read(const std::byte* data, size_t bytes, uint32_t streams, V zero, Add add, Keep keep) {
  if (streams == 1)
    read_streams<1, Sums>(data, bytes, zero, add, keep);
  else
    read_streams<kReadStreams, Sums>(data, bytes / kReadStreams, zero, add, keep);
}

}  // namespace kvasir::peak
