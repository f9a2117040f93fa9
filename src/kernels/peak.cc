#include "kernels/peak.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "kernels/isa/peak_functions.h"

namespace kvasir {
namespace {

constexpr PeakTable kScalarPeak = {.isa = Isa::kScalar,
                                   .int8_name = "imul, add",
                                   .int8_macs_per_round = scalar::kInt8MacsPerRound,
                                   .int8_rounds = scalar::int8_rounds,
                                   .f32_name = "mulss, addss",
                                   .f32_macs_per_round = scalar::kF32MacsPerRound,
                                   .f32_rounds = scalar::f32_rounds,
                                   .read = scalar::read};

// A table with other integer multiply-adds.
[[maybe_unused]] constexpr PeakTable with_int8(PeakTable table, Isa isa, std::string_view name,
                                               uint32_t macs_per_round, void (*rounds)(uint64_t)) {
  table.isa = isa;
  table.int8_name = name;
  table.int8_macs_per_round = macs_per_round;
  table.int8_rounds = rounds;
  return table;
}

#if defined(__x86_64__)
constexpr PeakTable kAvx2Peak = {.isa = Isa::kAvx2,
                                 .int8_name = "vpmaddubsw, vpmaddwd, vpaddd ymm",
                                 .int8_macs_per_round = avx2::kInt8MacsPerRound,
                                 .int8_rounds = avx2::int8_rounds,
                                 .f32_name = "vfmadd ymm",
                                 .f32_macs_per_round = avx2::kF32MacsPerRound,
                                 .f32_rounds = avx2::f32_rounds,
                                 .read = avx2::read};
constexpr PeakTable kAvx512Peak = {.isa = Isa::kAvx512Vnni,
                                   .int8_name = "vpdpbusd zmm",
                                   .int8_macs_per_round = avx512::kInt8MacsPerRound,
                                   .int8_rounds = avx512::int8_rounds,
                                   .f32_name = "vfmadd zmm",
                                   .f32_macs_per_round = avx512::kF32MacsPerRound,
                                   .f32_rounds = avx512::f32_rounds,
                                   .read = avx512::read};
constexpr std::array kPeaks = {
    kScalarPeak, kAvx2Peak,
    with_int8(kAvx2Peak, Isa::kAvxVnni, "vpdpbusd ymm", avxvnni::kInt8MacsPerRound, avxvnni::int8_rounds),
    kAvx512Peak, with_int8(kAvx512Peak, Isa::kAmxInt8, "tdpbssd", amx::kInt8MacsPerRound, amx::int8_rounds)};
#elif defined(__aarch64__)
constexpr std::array kPeaks = {kScalarPeak, PeakTable{.isa = Isa::kNeonDotprod,
                                                      .int8_name = "sdot",
                                                      .int8_macs_per_round = neon::kInt8MacsPerRound,
                                                      .int8_rounds = neon::int8_rounds,
                                                      .f32_name = "fmla",
                                                      .f32_macs_per_round = neon::kF32MacsPerRound,
                                                      .f32_rounds = neon::f32_rounds,
                                                      .read = neon::read}};
#else
constexpr std::array kPeaks = {kScalarPeak};
#endif

}  // namespace

const PeakTable& peak_table(Isa isa) {
  CHECK(isa_supported(isa));
  const auto* table =
      std::find_if(kPeaks.begin(), kPeaks.end(), [isa](const PeakTable& t) { return t.isa == isa; });
  CHECK(table != kPeaks.end());
  return *table;
}

}  // namespace kvasir
