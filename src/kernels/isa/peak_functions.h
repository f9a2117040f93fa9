#pragma once

#include <cstddef>
#include <cstdint>

// The members of PeakTable (kernels/peak.h), once per instruction set, with the work of one round.

namespace kvasir::scalar {
inline constexpr uint32_t kInt8MacsPerRound = 8;
inline constexpr uint32_t kF32MacsPerRound = 8;
void int8_rounds(uint64_t rounds);
void f32_rounds(uint64_t rounds);
void read(const std::byte* data, size_t bytes, uint32_t streams);
}  // namespace kvasir::scalar

namespace kvasir::avx2 {
inline constexpr uint32_t kInt8MacsPerRound = 8 * 32;
inline constexpr uint32_t kF32MacsPerRound = 12 * 8;
void int8_rounds(uint64_t rounds);
void f32_rounds(uint64_t rounds);
void read(const std::byte* data, size_t bytes, uint32_t streams);
}  // namespace kvasir::avx2

namespace kvasir::avx512 {
inline constexpr uint32_t kInt8MacsPerRound = 16 * 64;
inline constexpr uint32_t kF32MacsPerRound = 16 * 16;
void int8_rounds(uint64_t rounds);
void f32_rounds(uint64_t rounds);
void read(const std::byte* data, size_t bytes, uint32_t streams);
}  // namespace kvasir::avx512

namespace kvasir::avxvnni {  // the rest is AVX2's
inline constexpr uint32_t kInt8MacsPerRound = 12 * 32;
void int8_rounds(uint64_t rounds);
}  // namespace kvasir::avxvnni

namespace kvasir::amx {  // the rest is AVX-512's
inline constexpr uint32_t kInt8MacsPerRound = 4 * 16 * 16 * 64;
void int8_rounds(uint64_t rounds);
}  // namespace kvasir::amx

namespace kvasir::neon {
inline constexpr uint32_t kInt8MacsPerRound = 16 * 16;
inline constexpr uint32_t kF32MacsPerRound = 16 * 4;
void int8_rounds(uint64_t rounds);
void f32_rounds(uint64_t rounds);
void read(const std::byte* data, size_t bytes, uint32_t streams);
}  // namespace kvasir::neon
