#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/table.h"

namespace kvasir {

// The most that an instruction set can do, as loops to be timed: arithmetic on registers alone, and a pass
// over memory that only reads. What kernels reach is a fraction of these. Every function is thread-safe and
// allocates nothing.
struct PeakTable {
  Isa isa;

  // int8 multiply-adds into int32, exact, by the best instructions of the set; enough independent chains that
  // latency does not count.
  std::string_view int8_name;  // "vpdpbusd zmm"
  uint32_t int8_macs_per_round;
  void (*int8_rounds)(uint64_t rounds);

  // f32 multiply-adds, fused where the set has it.
  std::string_view f32_name;
  uint32_t f32_macs_per_round;
  void (*f32_rounds)(uint64_t rounds);

  // Reads [data, data + bytes) once, in `streams` runs side by side (1 or kReadStreams); bytes is a multiple
  // of kReadGrain and data 64-byte aligned.
  void (*read)(const std::byte* data, size_t bytes, uint32_t streams);
};
inline constexpr uint32_t kReadStreams = 4;
inline constexpr size_t kReadGrain = 4096;

// The table of an instruction set that isa_supported().
const PeakTable& peak_table(Isa isa);

// `rounds` times kAddsPerRound integer additions, each waiting for the one before: one clock cycle each on
// every processor we know. Both operands are registers, because Intel's cores since Golden Cove rename away
// additions of a small constant.
void dependent_adds(uint64_t rounds);
inline constexpr uint32_t kAddsPerRound = 64;

}  // namespace kvasir
