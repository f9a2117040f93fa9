#include "models/weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "kernels/quant_codec.h"
#include "kernels/table.h"
#include "models/bind_model.h"
#include "models/weight_sizes.h"

namespace kvasir {
namespace {

// Plans the walk without memory: every check runs here, before anything is allocated. Returns the bytes that
// the weights will take; `planned` has their shapes, and pointers that must not be followed.
Result<size_t> plan(const GgufFile& file, ModelConfig& config, ModelWeights& planned) {
  if (file.tensors().empty())
    return corrupt(fmt::format("'{}' holds no weights (a vocabulary-only file)", file.path()));
  // A base that is never dereferenced, so that present() tells which tensors exist.
  TensorBinder binder(file, reinterpret_cast<const std::byte*>(alignof(std::max_align_t)));
  bind_model(binder, config, planned);
  KVASIR_RETURN_IF_ERROR(binder.status());
  if (!file.integers().empty())
    return unsupported(fmt::format("tensor '{}' has type {}: weights are never of it",
                                   file.integers()[0].name, file.integers()[0].type));
  config.parameter_count = 0;
  for (const TensorInfo& t : file.tensors()) {
    config.parameter_count += t.view.elements();
    if (!binder.used(t.name))
      return unsupported(
          fmt::format("tensor '{}' is not one that architecture '{}' has here: refusing to leave part of "
                      "the model out",
                      t.name, config.architecture));
  }
  return binder.total();
}

// Reads one tensor at a time from the file into the packed memory. Large ones go by slices whose pages are
// given back at once: a tied embedding can be most of a file, and would count twice.
class Filler {
 public:
  Filler(const GgufFile& file, std::byte* base, ThreadPool& pool) : file_(file), base_(base), pool_(pool) {}

  void fill(const Placement& p) {
    std::byte* dst = base_ + p.offset;
    const TensorView& view = p.tensor->view;
    if (p.kind == Placement::Kind::kFloats) copy_floats(p, dst);
    if (p.kind == Placement::Kind::kRawRows) std::memcpy(dst, view.data, p.bytes);
    if (p.kind == Placement::Kind::kPacked) pack(p, dst);
    if (p.kind == Placement::Kind::kTransposed) pack_transposed(p, dst);
    file_.release(*p.tensor);
  }

 private:
  static constexpr size_t kSliceBytes = size_t{8} << 20;

  // Of a slice the values before it are decoded too: slices are of whole vectors, and those are small.
  void copy_floats(const Placement& p, std::byte* dst) {
    const TensorView& view = p.tensor->view;
    std::vector<float> all(view.elements());
    dequantize(view.type, view.data, all.size(), all.data());
    std::memcpy(dst, all.data() + p.first_row, p.bytes);
  }

  // Rows of a tensor as columns, in F32. They are one head's: small.
  void pack_transposed(const Placement& p, std::byte* dst) {
    const TensorView& view = p.tensor->view;
    const auto n = static_cast<uint32_t>(view.shape[0]);
    std::vector<float> rows(size_t{p.rows} * n), columns(rows.size());
    dequantize(view.type, view.data + p.first_row * view.row_bytes(), rows.size(), rows.data());
    for (uint32_t i = 0; i < p.rows; ++i)
      for (uint32_t j = 0; j < n; ++j) columns[size_t{j} * p.rows + i] = rows[size_t{i} * n + j];
    pack_panels(DType::kF32, reinterpret_cast<const std::byte*>(columns.data()), n, p.rows, 0,
                (n + kPanelCols - 1) / kPanelCols, dst);
  }

  void pack(const Placement& p, std::byte* dst) {
    const TensorView& view = p.tensor->view;
    const auto k = static_cast<uint32_t>(view.shape[0]);
    const size_t skipped = p.first_row * view.row_bytes();
    const uint32_t panels = (p.rows + kPanelCols - 1) / kPanelCols;
    const size_t source_bytes = view.row_bytes() * kPanelCols;
    const auto slice = static_cast<uint32_t>(std::max<size_t>(pool_.size(), kSliceBytes / source_bytes));
    for (uint32_t first = 0; first < panels; first += slice) {
      const uint32_t count = std::min(slice, panels - first);
      pool_.run([&](Worker& w) {
        const auto [begin, end] = w.share(count);
        if (begin < end)
          pack_panels(view.type, view.data + skipped, p.rows, k, first + static_cast<uint32_t>(begin),
                      first + static_cast<uint32_t>(end), dst);
      });
      if (first + count < panels)
        file_.release(*p.tensor, skipped + first * source_bytes, count * source_bytes);
    }
  }

  const GgufFile& file_;
  std::byte* base_;
  ThreadPool& pool_;
};

}  // namespace

Result<uint64_t> packed_weight_bytes(const GgufFile& file, const ModelConfig& config) {
  ModelConfig copy = config;
  ModelWeights planned;
  KVASIR_ASSIGN_OR_RETURN(const size_t bytes, plan(file, copy, planned));
  return static_cast<uint64_t>(bytes);
}

Result<WeightSizes> read_weight_sizes(const GgufFile& file, ModelConfig& config) {
  ModelWeights planned;
  KVASIR_RETURN_IF_ERROR(plan(file, config, planned).status());
  return weight_sizes(planned, config);
}

Result<ModelWeights> load_weights(const GgufFile& file, ModelConfig& config, ThreadPool& pool,
                                  const std::function<void(uint64_t, uint64_t)>& progress) {
  ModelWeights planned;
  KVASIR_ASSIGN_OR_RETURN(const size_t bytes, plan(file, config, planned));
  ModelWeights weights;
  try {
    weights.memory = AlignedBuffer(bytes);
  } catch (const std::bad_alloc&) {
    return resource_exhausted(
        fmt::format("cannot allocate {} bytes for the weights of '{}'", bytes, file.path()));
  }
  TensorBinder binder(file, weights.memory.data());
  bind_model(binder, config, weights);
  KVASIR_RETURN_IF_ERROR(binder.status());
  Filler filler(file, weights.memory.data(), pool);
  uint64_t done = 0;
  for (const Placement& p : binder.placements()) {
    filler.fill(p);
    done += p.bytes;
    if (progress) progress(done, bytes);
  }
  return weights;
}

}  // namespace kvasir
