#include "kernels/peak.h"

#include <array>

#include "base/check.h"
#include "kernels/isa/peak_functions.h"

namespace kvasir {
namespace {

constexpr std::array<PeakTable, 3> kPeaks = {{
    {.isa = Isa::kScalar,
     .int8_name = "imul, add",
     .int8_macs_per_round = scalar::kInt8MacsPerRound,
     .int8_rounds = scalar::int8_rounds,
     .f32_name = "mulss, addss",
     .f32_macs_per_round = scalar::kF32MacsPerRound,
     .f32_rounds = scalar::f32_rounds,
     .read = scalar::read},
    {.isa = Isa::kAvx2,
     .int8_name = "vpmaddubsw, vpmaddwd, vpaddd ymm",
     .int8_macs_per_round = avx2::kInt8MacsPerRound,
     .int8_rounds = avx2::int8_rounds,
     .f32_name = "vfmadd ymm",
     .f32_macs_per_round = avx2::kF32MacsPerRound,
     .f32_rounds = avx2::f32_rounds,
     .read = avx2::read},
    {.isa = Isa::kAvx512Vnni,
     .int8_name = "vpdpbusd zmm",
     .int8_macs_per_round = avx512::kInt8MacsPerRound,
     .int8_rounds = avx512::int8_rounds,
     .f32_name = "vfmadd zmm",
     .f32_macs_per_round = avx512::kF32MacsPerRound,
     .f32_rounds = avx512::f32_rounds,
     .read = avx512::read},
}};

}  // namespace

const PeakTable& peak_table(Isa isa) {
  CHECK(isa_supported(isa));
  const PeakTable& table = kPeaks[static_cast<size_t>(isa)];
  CHECK(table.isa == isa);
  return table;
}

}  // namespace kvasir
