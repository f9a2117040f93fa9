#include <array>
#include <string>

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/cpu_features.h"
#include "kernels/isa/float_functions.h"
#include "kernels/isa/linear_functions.h"
#include "kernels/table.h"

namespace kvasir {
namespace {

struct IsaRow {
  Isa isa;
  std::string_view name;
  bool (*supported)(const CpuFeatures& f);
  KernelTable table;
};

constexpr std::array<IsaRow, 3> kIsas = {{
    {Isa::kScalar,
     "scalar",
     [](const CpuFeatures&) { return true; },
     {.isa = Isa::kScalar,
      .quantize_rows = scalar::quantize_rows,
      .linear = scalar::linear,
      .rms_norm = scalar::rms_norm,
      .gated_act = scalar::gated_act,
      .rope = scalar::rope,
      .add = scalar::add,
      .scale = scalar::scale,
      .store_kv = scalar::store_kv,
      .attention = scalar::attention,
      .merge_attention = scalar::merge_attention,
      .argmax = scalar::argmax,
      .log_sum_exp = scalar::log_sum_exp,
      .softcap = scalar::softcap}},
    {Isa::kAvx2,
     "avx2",
     [](const CpuFeatures& f) { return f.avx2; },
     {.isa = Isa::kAvx2,
      .quantize_rows = avx2::quantize_rows,
      .linear = avx2::linear,
      .rms_norm = avx2::rms_norm,
      .gated_act = avx2::gated_act,
      .rope = avx2::rope,
      .add = avx2::add,
      .scale = avx2::scale,
      .store_kv = avx2::store_kv,
      .attention = avx2::attention,
      .merge_attention = avx2::merge_attention,
      .argmax = avx2::argmax,
      .log_sum_exp = avx2::log_sum_exp,
      .softcap = avx2::softcap}},
    {Isa::kAvx512Vnni,
     "avx512-vnni",
     [](const CpuFeatures& f) {
       return f.avx2 && f.avx512f && f.avx512bw && f.avx512vl && f.avx512dq && f.avx512vnni;
     },
     {.isa = Isa::kAvx512Vnni,
      .quantize_rows = avx512::quantize_rows,
      .linear = avx512::linear,
      .rms_norm = avx512::rms_norm,
      .gated_act = avx512::gated_act,
      .rope = avx512::rope,
      .add = avx512::add,
      .scale = avx512::scale,
      .store_kv = avx512::store_kv,
      .attention = avx512::attention,
      .merge_attention = avx512::merge_attention,
      .argmax = avx512::argmax,
      .log_sum_exp = avx512::log_sum_exp,
      .softcap = avx512::softcap}},
}};

const IsaRow& row_of(Isa isa) {
  const auto index = static_cast<size_t>(isa);
  CHECK(index < kIsas.size() && kIsas[index].isa == isa);
  return kIsas[index];
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect_cpu_features();
  return features;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  return row_of(isa).name;
}

Result<Isa> parse_isa(std::string_view name) {
  std::string names;
  for (const IsaRow& row : kIsas) {
    if (row.name == name) return row.isa;
    names += names.empty() ? "" : ", ";
    names += row.name;
  }
  return invalid_argument(fmt::format("unknown instruction set '{}': choose one of {}", name, names));
}

bool isa_supported(Isa isa) {
  return row_of(isa).supported(cpu_features());
}

Isa best_isa() {
  Isa best = Isa::kScalar;
  for (const IsaRow& row : kIsas) {
    if (row.supported(cpu_features())) best = row.isa;
  }
  return best;
}

const KernelTable& kernel_table(Isa isa) {
  CHECK(isa_supported(isa));
  return row_of(isa).table;
}

}  // namespace kvasir
