#include "models/weights.h"

#include <fmt/core.h>

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
    const TensorInfo* t = find(name, required);
    if (t == nullptr || !check_shape(*t, k, n)) return;
    if (!can_pack(t->view.type, static_cast<uint32_t>(k)))
      return fail(unsupported(fmt::format("tensor '{}': {} with {} inputs has no linear kernel", name,
                                          dtype_info(t->view.type).name, k)));
    out.type = t->view.type;
    out.n = static_cast<uint32_t>(n);
    out.k = static_cast<uint32_t>(k);
    out.panel_bytes = packed_panel_bytes(out.type, out.k);
    out.data = place(Placement::Kind::kPacked, *t, out.panel_bytes * out.panels());
  }

  // A vector of n floats; whatever its type in the file, it is kept as f32.
  void floats(const std::string& name, uint64_t n, const float*& out, bool required) {
    const TensorInfo* t = find(name, required);
    if (t == nullptr || !check_shape(*t, n, 1)) return;
    out = reinterpret_cast<const float*>(place(Placement::Kind::kFloats, *t, n * sizeof(float)));
  }

  // Rows kept in the file's own format.
  void raw_rows(const std::string& name, TensorView& out) {
    const TensorInfo* t = find(name, true);
    if (t == nullptr) return;
    out = t->view;
    out.data = place(Placement::Kind::kRawRows, *t, t->view.bytes());
  }

  const TensorInfo* find(const std::string& name, bool required) {
    const TensorInfo* t = file_.find_tensor(name);
    if (t == nullptr && required) fail(not_found(fmt::format("tensor '{}' is missing", name)));
    if (t != nullptr) used_.insert(name);
    return t;
  }

  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  Status status() const { return status_; }
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

  const std::byte* place(Placement::Kind kind, const TensorInfo& tensor, size_t bytes) {
    const size_t offset = total_;
    placements_.push_back({kind, &tensor, offset, bytes});
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

void bind_model(Binder& b, ModelConfig& c, ModelWeights& w) {
  const TensorInfo* embedding = b.find("token_embd.weight", true);
  if (embedding == nullptr) return;
  const auto& shape = embedding->view.shape;
  if (shape[0] != c.hidden_dim || shape[1] == 0 || shape[1] > (1u << 24) || shape[2] * shape[3] != 1)
    return b.fail(corrupt(
        fmt::format("tensor 'token_embd.weight' has shape ({}, {}, {}, {}); {}.embedding_length is {}",
                    shape[0], shape[1], shape[2], shape[3], c.architecture, c.hidden_dim)));
  c.vocab_size = static_cast<uint32_t>(shape[1]);
  b.matrix("output.weight", c.vocab_size, c.hidden_dim, w.head, false);
  w.tied = !w.head.present() && b.status().ok();
  if (w.tied)
    b.matrix("token_embd.weight", c.vocab_size, c.hidden_dim, w.head);
  else
    b.raw_rows("token_embd.weight", w.embedding);
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

void fill(const Placement& p, std::byte* base, const PackedMatrix* shape, ThreadPool& pool) {
  std::byte* dst = base + p.offset;
  const TensorView& view = p.tensor->view;
  switch (p.kind) {
    case Placement::Kind::kFloats:
      dequantize(view.type, view.data, view.elements(), reinterpret_cast<float*>(dst));
      break;
    case Placement::Kind::kRawRows:
      std::memcpy(dst, view.data, p.bytes);
      break;
    case Placement::Kind::kPacked:
      pool.run([&](Worker& w) {
        const auto [begin, end] = w.share(shape->panels());
        if (begin < end)
          pack_panels(view.type, view.data, shape->n, shape->k, static_cast<uint32_t>(begin),
                      static_cast<uint32_t>(end), dst);
      });
      break;
  }
}

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
  uint64_t done = 0;
  for (const Placement& p : binder.placements()) {
    PackedMatrix shape;
    if (p.kind == Placement::Kind::kPacked) {
      shape.n = static_cast<uint32_t>(p.tensor->view.shape[1]);
      shape.k = static_cast<uint32_t>(p.tensor->view.shape[0]);
      shape.panel_bytes = packed_panel_bytes(p.tensor->view.type, shape.k);
    }
    fill(p, weights.memory.data(), &shape, pool);
    file.release(*p.tensor);
    done += p.bytes;
    if (progress) progress(done, bytes);
  }
  return weights;
}

}  // namespace kvasir
