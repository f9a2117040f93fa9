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

constexpr KernelTable kScalarTable = {.isa = Isa::kScalar,
                                      .quantize_rows = scalar::quantize_rows,
                                      .linear = scalar::linear,
                                      .rms_norm = scalar::rms_norm,
                                      .layer_norm = scalar::layer_norm,
                                      .gated_act = scalar::gated_act,
                                      .rope = scalar::rope,
                                      .add = scalar::add,
                                      .scale = scalar::scale,
                                      .store_kv = scalar::store_kv,
                                      .attention = scalar::attention,
                                      .merge_attention = scalar::merge_attention,
                                      .scan_logits = scalar::scan_logits,
                                      .argmax = scalar::argmax,
                                      .log_sum_exp = scalar::log_sum_exp,
                                      .softcap = scalar::softcap};

// A table with other linear layers.
[[maybe_unused]] constexpr KernelTable with_linear(KernelTable table, Isa isa,
                                                   void (*linear)(const LinearArgs&)) {
  table.isa = isa;
  table.linear = linear;
  return table;
}

// An instruction set of another processor family has a name and an empty table.
#if defined(__x86_64__)
constexpr KernelTable kAvx2Table = {.isa = Isa::kAvx2,
                                    .quantize_rows = avx2::quantize_rows,
                                    .linear = avx2::linear,
                                    .rms_norm = avx2::rms_norm,
                                    .layer_norm = avx2::layer_norm,
                                    .gated_act = avx2::gated_act,
                                    .rope = avx2::rope,
                                    .add = avx2::add,
                                    .scale = avx2::scale,
                                    .store_kv = avx2::store_kv,
                                    .attention = avx2::attention,
                                    .merge_attention = avx2::merge_attention,
                                    .scan_logits = avx2::scan_logits,
                                    .argmax = avx2::argmax,
                                    .log_sum_exp = avx2::log_sum_exp,
                                    .softcap = avx2::softcap};
constexpr KernelTable kAvx512Table = {.isa = Isa::kAvx512Vnni,
                                      .quantize_rows = avx512::quantize_rows,
                                      .linear = avx512::linear,
                                      .rms_norm = avx512::rms_norm,
                                      .layer_norm = avx512::layer_norm,
                                      .gated_act = avx512::gated_act,
                                      .rope = avx512::rope,
                                      .add = avx512::add,
                                      .scale = avx512::scale,
                                      .store_kv = avx512::store_kv,
                                      .attention = avx512::attention,
                                      .merge_attention = avx512::merge_attention,
                                      .scan_logits = avx512::scan_logits,
                                      .argmax = avx512::argmax,
                                      .log_sum_exp = avx512::log_sum_exp,
                                      .softcap = avx512::softcap};
constexpr KernelTable kAvxVnniTable = with_linear(kAvx2Table, Isa::kAvxVnni, avxvnni::linear);
constexpr KernelTable kAmxTable = with_linear(kAvx512Table, Isa::kAmxInt8, amx::linear);
constexpr KernelTable kNeonTable = {};
#elif defined(__aarch64__)
constexpr KernelTable kNeonTable = {.isa = Isa::kNeonDotprod,
                                    .quantize_rows = neon::quantize_rows,
                                    .linear = neon::linear,
                                    .rms_norm = neon::rms_norm,
                                    .layer_norm = neon::layer_norm,
                                    .gated_act = neon::gated_act,
                                    .rope = neon::rope,
                                    .add = neon::add,
                                    .scale = neon::scale,
                                    .store_kv = neon::store_kv,
                                    .attention = neon::attention,
                                    .merge_attention = neon::merge_attention,
                                    .scan_logits = neon::scan_logits,
                                    .argmax = neon::argmax,
                                    .log_sum_exp = neon::log_sum_exp,
                                    .softcap = neon::softcap};
constexpr KernelTable kAvx2Table = {}, kAvxVnniTable = {}, kAvx512Table = {}, kAmxTable = {};
#else
constexpr KernelTable kNeonTable = {}, kAvx2Table = {}, kAvxVnniTable = {}, kAvx512Table = {}, kAmxTable = {};
#endif

bool has_avx512_vnni(const CpuFeatures& f) {
  return f.avx2 && f.avx512f && f.avx512bw && f.avx512vl && f.avx512dq && f.avx512vnni;
}

struct IsaRow {
  Isa isa;
  std::string_view name;
  bool (*supported)(const CpuFeatures& f);
  KernelTable table;
};

constexpr std::array<IsaRow, 6> kIsas = {{
    {Isa::kScalar, "scalar", [](const CpuFeatures&) { return true; }, kScalarTable},
    {Isa::kNeonDotprod, "neon-dotprod", [](const CpuFeatures& f) { return f.neon_dotprod; }, kNeonTable},
    {Isa::kAvx2, "avx2", [](const CpuFeatures& f) { return f.avx2; }, kAvx2Table},
    {Isa::kAvxVnni, "avx-vnni", [](const CpuFeatures& f) { return f.avx2 && f.avx_vnni; }, kAvxVnniTable},
    {Isa::kAvx512Vnni, "avx512-vnni", has_avx512_vnni, kAvx512Table},
    {Isa::kAmxInt8, "amx-int8",
     [](const CpuFeatures& f) { return has_avx512_vnni(f) && f.amx_int8 && allow_amx_tiles(); }, kAmxTable},
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

constexpr std::array<Isa, kIsas.size()> kAllIsas = [] {
  std::array<Isa, kIsas.size()> isas{};
  for (size_t i = 0; i < isas.size(); ++i) isas[i] = kIsas[i].isa;
  return isas;
}();

}  // namespace

std::span<const Isa> all_isas() {
  return kAllIsas;
}

std::string_view isa_name(Isa isa) {
  return row_of(isa).name;
}

std::string isa_names() {
  std::string names;
  for (const IsaRow& row : kIsas) {
    names += names.empty() ? "" : ", ";
    names += row.name;
  }
  return names;
}

Result<Isa> parse_isa(std::string_view name) {
  for (const IsaRow& row : kIsas) {
    if (row.name == name) return row.isa;
  }
  return invalid_argument(fmt::format("unknown instruction set '{}': choose one of {}", name, isa_names()));
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
