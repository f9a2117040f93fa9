#include "models/weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <unordered_set>

#include "kernels/quant_codec.h"
#include "kernels/table.h"
#include "models/weight_sizes.h"

namespace kvasir {
namespace {

constexpr size_t kAlign = 64;

size_t aligned(size_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

// A tensor's place in the packed memory and what becomes of it there.
struct Placement {
  enum class Kind { kPacked, kFloats, kRawRows };
  Kind kind;
  const TensorInfo* tensor;
  uint32_t rows;  // of the tensor, from its first one
  size_t offset;
  size_t bytes;
};

// Walks the tensors a configuration calls for, twice: planning (sizes and checks) and then binding pointers.
// The walk itself is bind_model() below, written once.
class Binder {
 public:
  Binder(const GgufFile& file, const std::byte* base) : file_(file), base_(base) {}

  // A packed matrix of n outputs and k inputs.
  void matrix(const std::string& name, uint64_t n, uint64_t k, PackedMatrix& out, bool required = true) {
    first_rows(name, n, n, k, out, required);
  }

  // The first `kept` outputs of a matrix of n outputs and k inputs.
  void first_rows(const std::string& name, uint64_t kept, uint64_t n, uint64_t k, PackedMatrix& out,
                  bool required) {
    const TensorInfo* t = find(name, required);
    if (t == nullptr || !check_shape(*t, k, n)) return;
    if (!can_pack(t->view.type, static_cast<uint32_t>(k)))
      return fail(unsupported(fmt::format("tensor '{}': {} with {} inputs has no linear kernel", name,
                                          dtype_info(t->view.type).name, k)));
    out.type = t->view.type;
    out.n = static_cast<uint32_t>(kept);
    out.k = static_cast<uint32_t>(k);
    out.panel_bytes = packed_panel_bytes(out.type, out.k);
    out.data = place(Placement::Kind::kPacked, *t, out.n, out.panel_bytes * out.panels());
  }

  // A vector of n floats; whatever its type in the file, it is kept as f32.
  void floats(const std::string& name, uint64_t n, const float*& out, bool required) {
    const TensorInfo* t = find(name, required);
    if (t == nullptr || !check_shape(*t, n, 1)) return;
    out = reinterpret_cast<const float*>(place(Placement::Kind::kFloats, *t, 1, n * sizeof(float)));
  }

  // The first `kept` rows of a matrix, in the file's own format.
  void raw_rows(const std::string& name, uint32_t kept, TensorView& out) {
    const TensorInfo* t = find(name, true);
    if (t == nullptr) return;
    out = t->view;
    out.shape[1] = kept;
    out.data = place(Placement::Kind::kRawRows, *t, kept, out.bytes());
  }

  const TensorInfo* find(const std::string& name, bool required) {
    const TensorInfo* t = file_.find_tensor(name);
    if (t == nullptr && required) fail(corrupt(fmt::format("tensor '{}' is missing", name)));
    if (t != nullptr) used_.insert(name);
    return t;
  }

  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  Status status() const { return status_; }
  const GgufMetadata& metadata() const { return file_.metadata(); }
  size_t total() const { return total_; }
  const std::vector<Placement>& placements() const { return placements_; }
  bool used(const std::string& name) const { return used_.contains(name); }

 private:
  bool check_shape(const TensorInfo& t, uint64_t k, uint64_t n) {
    const auto& s = t.view.shape;
    if (s[0] == k && s[1] == n && s[2] == 1 && s[3] == 1) return true;
    fail(corrupt(fmt::format("tensor '{}' has shape ({}, {}, {}, {}); the metadata calls for ({}, {})",
                             t.name, s[0], s[1], s[2], s[3], k, n)));
    return false;
  }

  const std::byte* place(Placement::Kind kind, const TensorInfo& tensor, uint32_t rows, size_t bytes) {
    const size_t offset = total_;
    placements_.push_back({kind, &tensor, rows, offset, bytes});
    total_ += aligned(bytes);
    return base_ + offset;
  }

  const GgufFile& file_;
  const std::byte* base_;
  size_t total_ = 0;
  std::vector<Placement> placements_;
  std::unordered_set<std::string> used_;
  Status status_;
};

void bind_layer(Binder& b, const ModelConfig& c, uint32_t index, LayerWeights& l) {
  const auto name = [&](const char* part) { return fmt::format("blk.{}.{}", index, part); };
  b.floats(name("attn_norm.weight"), c.hidden_dim, l.attn_norm, true);
  b.matrix(name("attn_q.weight"), c.q_dim(), c.hidden_dim, l.q);
  b.matrix(name("attn_k.weight"), c.kv_dim(), c.hidden_dim, l.k);
  b.matrix(name("attn_v.weight"), c.kv_dim(), c.hidden_dim, l.v);
  b.matrix(name("attn_output.weight"), c.hidden_dim, c.q_dim(), l.o);
  b.floats(name("attn_q.bias"), c.q_dim(), l.q_bias, false);
  b.floats(name("attn_k.bias"), c.kv_dim(), l.k_bias, false);
  b.floats(name("attn_v.bias"), c.kv_dim(), l.v_bias, false);
  b.floats(name("attn_output.bias"), c.hidden_dim, l.o_bias, false);
  b.floats(name("attn_q_norm.weight"), c.head_dim, l.q_norm, false);
  b.floats(name("attn_k_norm.weight"), c.head_dim, l.k_norm, false);
  b.floats(name("post_attention_norm.weight"), c.hidden_dim, l.post_attn_norm, false);
  b.floats(name("ffn_norm.weight"), c.hidden_dim, l.ffn_norm, true);
  b.matrix(name("ffn_gate.weight"), c.ffn_dim, c.hidden_dim, l.gate);
  b.matrix(name("ffn_up.weight"), c.ffn_dim, c.hidden_dim, l.up);
  b.matrix(name("ffn_down.weight"), c.hidden_dim, c.ffn_dim, l.down);
  b.floats(name("post_ffw_norm.weight"), c.hidden_dim, l.post_ffn_norm, false);
}

// As many tokens as the tokenizer has. Rows of the embedding beyond those pad it to a round number: they are
// left out, so that no token without a text can be chosen. A file without a tokenizer has a token per row.
Result<uint32_t> vocabulary_size(const GgufMetadata& metadata, uint64_t rows) {
  constexpr uint64_t kMost = uint64_t{1} << 22;  // of the sampler
  KVASIR_ASSIGN_OR_RETURN(const std::vector<std::string>* tokens,
                          metadata.get_strings("tokenizer.ggml.tokens"));
  const uint64_t size = tokens != nullptr ? tokens->size() : rows;
  if (size == 0) return corrupt("tokenizer.ggml.tokens is empty");
  if (size > rows)
    return corrupt(fmt::format(
        "tensor 'token_embd.weight' has {} rows, and tokenizer.ggml.tokens {} tokens: each needs a row", rows,
        size));
  if (size > kMost)
    return unsupported(fmt::format("a vocabulary of {} tokens: at most {} are supported", size, kMost));
  return static_cast<uint32_t>(size);
}

void bind_model(Binder& b, ModelConfig& c, ModelWeights& w) {
  const TensorInfo* embedding = b.find("token_embd.weight", true);
  if (embedding == nullptr) return;
  const auto& shape = embedding->view.shape;
  if (shape[0] != c.hidden_dim || shape[1] == 0 || shape[1] > (1u << 24) || shape[2] * shape[3] != 1)
    return b.fail(corrupt(
        fmt::format("tensor 'token_embd.weight' has shape ({}, {}, {}, {}); {}.embedding_length is {}",
                    shape[0], shape[1], shape[2], shape[3], c.architecture, c.hidden_dim)));
  const Result<uint32_t> vocabulary = vocabulary_size(b.metadata(), shape[1]);
  if (!vocabulary.ok()) return b.fail(vocabulary.status());
  c.vocab_size = *vocabulary;
  b.first_rows("output.weight", c.vocab_size, shape[1], c.hidden_dim, w.head, false);
  w.tied = !w.head.present() && b.status().ok();
  if (w.tied)
    b.first_rows("token_embd.weight", c.vocab_size, shape[1], c.hidden_dim, w.head, true);
  else
    b.raw_rows("token_embd.weight", c.vocab_size, w.embedding);
  b.floats("output_norm.weight", c.hidden_dim, w.output_norm, true);
  b.floats("rope_freqs.weight", c.rope_dim / 2, w.rope_factors, false);
  w.layers.assign(c.layers, {});
  for (uint32_t l = 0; l < c.layers && b.status().ok(); ++l) bind_layer(b, c, l, w.layers[l]);
}

// Plans the walk without memory: every check runs here, before anything is allocated. Returns the bytes that
// the weights will take; `planned` has their shapes, and pointers that must not be followed.
Result<size_t> plan(const GgufFile& file, ModelConfig& config, ModelWeights& planned) {
  if (file.tensors().empty())
    return corrupt(fmt::format("'{}' holds no weights (a vocabulary-only file)", file.path()));
  // A base that is never dereferenced, so that present() tells which tensors exist.
  Binder binder(file, reinterpret_cast<const std::byte*>(kAlign));
  bind_model(binder, config, planned);
  KVASIR_RETURN_IF_ERROR(binder.status());
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
    if (p.kind == Placement::Kind::kFloats)
      dequantize(view.type, view.data, view.elements(), reinterpret_cast<float*>(dst));
    if (p.kind == Placement::Kind::kRawRows) std::memcpy(dst, view.data, p.bytes);
    if (p.kind == Placement::Kind::kPacked) pack(p, dst);
    file_.release(*p.tensor);
  }

 private:
  static constexpr size_t kSliceBytes = size_t{8} << 20;

  void pack(const Placement& p, std::byte* dst) {
    const TensorView& view = p.tensor->view;
    const auto k = static_cast<uint32_t>(view.shape[0]);
    const uint32_t panels = (p.rows + kPanelCols - 1) / kPanelCols;
    const size_t source_bytes = view.row_bytes() * kPanelCols;
    const auto slice = static_cast<uint32_t>(std::max<size_t>(pool_.size(), kSliceBytes / source_bytes));
    for (uint32_t first = 0; first < panels; first += slice) {
      const uint32_t count = std::min(slice, panels - first);
      pool_.run([&](Worker& w) {
        const auto [begin, end] = w.share(count);
        if (begin < end)
          pack_panels(view.type, view.data, p.rows, k, first + static_cast<uint32_t>(begin),
                      first + static_cast<uint32_t>(end), dst);
      });
      if (first + count < panels) file_.release(*p.tensor, first * source_bytes, count * source_bytes);
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
  return weight_sizes(planned);
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
  Binder binder(file, weights.memory.data());
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
