#include "models/tensor_binder.h"

#include <fmt/core.h>

#include "base/check.h"
#include "kernels/table.h"

namespace kvasir {
namespace {

constexpr size_t kAlign = 64;

size_t aligned(size_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

void TensorBinder::matrix(const std::string& name, uint64_t n, uint64_t k, PackedMatrix& out, Need need) {
  some_rows(name, 0, n, n, k, out, need);
}

void TensorBinder::some_rows(const std::string& name, uint64_t first, uint64_t kept, uint64_t n, uint64_t k,
                             PackedMatrix& out, Need need) {
  const TensorInfo* t = find(name, need);
  if (t == nullptr || !check_shape(*t, k, n)) return;
  pack(*t, first, kept, k, out);
}

void TensorBinder::experts(const std::string& name, uint32_t experts, uint64_t n, uint64_t k,
                           PackedMatrix& out) {
  const TensorInfo* t = find(name, Need::kRequired);
  if (t != nullptr && check_shape(*t, k, n, experts)) pack(*t, 0, n * experts, k, out);
}

void TensorBinder::experts_apart(const std::function<std::string(uint32_t)>& name_of, uint32_t experts,
                                 uint64_t n, uint64_t k, PackedMatrix& out) {
  for (uint32_t e = 0; e < experts; ++e) {
    PackedMatrix one;
    matrix(name_of(e), n, k, one);
    if (!one.present()) return;
    if (e == 0) out = one;
    if (one.type != out.type)
      return fail(unsupported(
          fmt::format("tensor '{}' is {} and '{}' {}: experts of a layer must be of one type", name_of(0),
                      dtype_info(out.type).name, name_of(e), dtype_info(one.type).name)));
    // Panels are multiples of kAlign, so that the next one's begin where these end.
    CHECK(one.data == out.data + e * out.panels() * out.panel_bytes);
  }
  out.n = static_cast<uint32_t>(n * experts);
}

void TensorBinder::pack(const TensorInfo& t, uint64_t first, uint64_t kept, uint64_t k, PackedMatrix& out) {
  if (!can_pack(t.view.type, static_cast<uint32_t>(k)))
    return fail(unsupported(fmt::format("tensor '{}': {} with {} inputs has no linear kernel", t.name,
                                        dtype_info(t.view.type).name, k)));
  out.type = t.view.type;
  out.n = static_cast<uint32_t>(kept);
  out.k = static_cast<uint32_t>(k);
  out.panel_bytes = packed_panel_bytes(out.type, out.k);
  out.data = place({.kind = Placement::Kind::kPacked,
                    .tensor = &t,
                    .first_row = static_cast<uint32_t>(first),
                    .rows = out.n,
                    .offset = 0,
                    .bytes = out.panel_bytes * out.panels()});
}

void TensorBinder::transposed_rows(const std::string& name, uint64_t first, uint64_t kept, uint64_t n,
                                   uint64_t k, PackedMatrix& out) {
  const TensorInfo* t = find(name, Need::kRequired);
  if (t == nullptr || !check_shape(*t, k, n)) return;
  out.type = DType::kF32;
  out.n = static_cast<uint32_t>(k);
  out.k = static_cast<uint32_t>(kept);
  out.panel_bytes = packed_panel_bytes(out.type, out.k);
  out.data = place({.kind = Placement::Kind::kTransposed,
                    .tensor = t,
                    .first_row = static_cast<uint32_t>(first),
                    .rows = static_cast<uint32_t>(kept),
                    .offset = 0,
                    .bytes = out.panel_bytes * out.panels()});
}

void TensorBinder::stack(const std::string& name, uint32_t count, uint64_t n, uint64_t k,
                         std::vector<PackedMatrix>& out) {
  out.assign(count, {});
  const TensorInfo* t = find(name, Need::kRequired);
  if (t == nullptr) return;
  const auto& s = t->view.shape;
  const bool split = s[0] == k && s[1] == n && s[2] == count && s[3] == 1;
  const bool flat = s[0] == k && s[1] == n * count && s[2] == 1 && s[3] == 1;
  if (!split && !flat)
    return fail(
        corrupt(fmt::format("tensor '{}' has shape ({}, {}, {}, {}); the metadata calls for ({}, {}, {})",
                            name, s[0], s[1], s[2], s[3], k, n, count)));
  CHECK(n % kPanelCols == 0);
  PackedMatrix all;
  pack(*t, 0, n * count, k, all);
  if (!all.present()) return;
  const auto panels = static_cast<uint32_t>(n / kPanelCols);
  for (uint32_t i = 0; i < count; ++i) out[i] = all.part(i * panels, (i + 1) * panels);
}

void TensorBinder::some_floats(const std::string& name, uint64_t first, uint64_t kept, uint64_t n,
                               const float*& out, Need need) {
  const TensorInfo* t = find(name, need);
  if (t == nullptr || !check_shape(*t, n, 1)) return;
  out = reinterpret_cast<const float*>(place({.kind = Placement::Kind::kFloats,
                                              .tensor = t,
                                              .first_row = static_cast<uint32_t>(first),
                                              .rows = static_cast<uint32_t>(kept),
                                              .offset = 0,
                                              .bytes = kept * sizeof(float)}));
}

void TensorBinder::table(const std::string& name, uint64_t n, uint64_t rows, const float*& out, Need need) {
  const TensorInfo* t = find(name, need);
  if (t == nullptr || !check_shape(*t, n, rows)) return;
  out = reinterpret_cast<const float*>(place({.kind = Placement::Kind::kFloats,
                                              .tensor = t,
                                              .first_row = 0,
                                              .rows = static_cast<uint32_t>(n * rows),
                                              .offset = 0,
                                              .bytes = n * rows * sizeof(float)}));
}

void TensorBinder::raw_rows(const std::string& name, uint32_t kept, TensorView& out) {
  const TensorInfo* t = find(name, Need::kRequired);
  if (t == nullptr) return;
  out = t->view;
  out.shape[1] = kept;
  out.data = place({.kind = Placement::Kind::kRawRows,
                    .tensor = t,
                    .first_row = 0,
                    .rows = kept,
                    .offset = 0,
                    .bytes = out.bytes()});
}

const TensorInfo* TensorBinder::find(const std::string& name, Need need) {
  const TensorInfo* t = file_.find_tensor(name);
  if (t == nullptr && need == Need::kRequired) fail(corrupt(fmt::format("tensor '{}' is missing", name)));
  if (t != nullptr) used_.insert(name);
  return t;
}

bool TensorBinder::check_shape(const TensorInfo& t, uint64_t k, uint64_t n, uint64_t experts) {
  const auto& s = t.view.shape;
  if (s[0] == k && s[1] == n && s[2] == experts && s[3] == 1) return true;
  const std::string third = experts == 1 ? "" : fmt::format(", {}", experts);
  fail(corrupt(fmt::format("tensor '{}' has shape ({}, {}, {}, {}); the metadata calls for ({}, {}{})",
                           t.name, s[0], s[1], s[2], s[3], k, n, third)));
  return false;
}

const std::byte* TensorBinder::place(Placement placement) {
  placement.offset = total_;
  placements_.push_back(placement);
  total_ += aligned(placement.bytes);
  return base_ + placement.offset;
}

}  // namespace kvasir
