#include "models/mixture_feed_forward.h"

#include <algorithm>
#include <cstring>

#include "kernels/router.h"

namespace kvasir {
namespace {

// A panel costs about what multiplying it with so many rows does, whatever the rows.
constexpr uint64_t kPanelCost = 4;

bool any_float(std::span<const LayerWeights> layers, bool down) {
  const auto is_float = [](const PackedMatrix& m) {
    return m.present() && dtype_info(m.type).block_elements == 1;
  };
  return std::any_of(layers.begin(), layers.end(), [&](const LayerWeights& l) {
    const MixtureWeights& m = l.mixture;
    return down ? is_float(m.down.all) : is_float(m.gate.all) || is_float(m.up.all);
  });
}

// Hands out memory from `base` on.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  template <class T>
  void take(T*& out, size_t count) {
    out = reinterpret_cast<T*>(base_ + used_);
    used_ += (count * sizeof(T) + 63) / 64 * 64;
  }
  void take(QuantRows& out, uint32_t rows, uint32_t k) {
    std::byte* at = nullptr;
    take(at, quant_rows_bytes(rows, k));
    out = carve_quant_rows(at, rows, k);
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

}  // namespace

MixtureFeedForward::MixtureFeedForward(const LayerOps& ops, std::span<const LayerWeights> layers,
                                       uint32_t max_rows, uint32_t threads)
    : ops_(ops), shared_(ops), max_rows_(max_rows), own_(threads) {
  const bool gathers_floats = any_float(layers, false), keeps_floats = any_float(layers, true);
  // First with a base that is never dereferenced, for the bytes.
  memory_ = AlignedBuffer(lay_out(reinterpret_cast<std::byte*>(uintptr_t{64}), gathers_floats, keeps_floats));
  lay_out(memory_.data(), gathers_floats, keeps_floats);
}

// Returns the bytes.
size_t MixtureFeedForward::lay_out(std::byte* base, bool gathers_floats, bool keeps_floats) {
  const RouterShape& router = shape().router;
  const uint32_t hidden = ops_.config().hidden_dim;
  const uint32_t slots = max_rows_ * router.used;
  Carver memory(base);
  memory.take(logits_, size_t{max_rows_} * router.experts);
  memory.take(shared_logits_, max_rows_);
  memory.take(choices_.experts, slots);
  memory.take(choices_.weights, slots);
  memory.take(hidden_, slots, shape().ffn_dim);
  if (keeps_floats) memory.take(hidden_values_, size_t{slots} * shape().ffn_dim);
  for (Own& own : own_) {
    memory.take(own.few.experts, StepBuffers::kOwnRows * router.used);
    memory.take(own.few.weights, StepBuffers::kOwnRows * router.used);
    memory.take(own.begin, router.experts + 1);
    memory.take(own.next, router.experts);
    memory.take(own.rows, slots);
    memory.take(own.weights, slots);
    memory.take(own.gathered.q, max_rows_, hidden);
    if (gathers_floats) memory.take(own.gathered.values, size_t{max_rows_} * hidden);
  }
  return memory.used();
}

void MixtureFeedForward::run(Worker& worker, const MixtureWeights& weights, const NormedRows& x,
                             uint32_t rows, const NormWeights& post_norm, PhaseClock& clock) {
  Own& own = own_[worker.index()];
  own.gate = ops_.buffers().gate_tile(worker.index());
  own.up = ops_.buffers().up_tile(worker.index());
  const LayerOps::Product logits[] = {{&weights.router, weights.router_bias, logits_, shape().router.experts},
                                      {&weights.shared_router, nullptr, shared_logits_, 1}};
  ops_.products(worker, {logits, weights.shared_router.present() ? 2u : 1u}, x.q, x.values, rows);
  worker.barrier();
  route(worker, weights, rows, own);
  clock.mark(StepPhase::kRouter);
  routed_hidden(worker, weights, x, own);
  if (weights.shared.gate.present()) shared_.hidden(worker, weights.shared, x, rows);
  worker.barrier();
  clock.mark(StepPhase::kGateUp);
  add_down(worker, weights, rows, post_norm, own);
  clock.mark(StepPhase::kDown);
}

// Each worker ends with its own list of slots. Few rows are chosen for by every worker, without a barrier.
void MixtureFeedForward::route(Worker& worker, const MixtureWeights& weights, uint32_t rows, Own& own) {
  const RouterShape& router = shape().router;
  const bool few = rows <= StepBuffers::kOwnRows;
  const Choices& to = few ? own.few : choices_;
  const auto [begin, end] = few ? std::pair<uint64_t, uint64_t>{0, rows} : worker.share(rows);
  for (uint64_t r = begin; r < end; ++r)
    choose_experts(router, logits_ + r * router.experts, weights.selection_bias, to.experts + r * router.used,
                   to.weights + r * router.used);
  if (!few) worker.barrier();
  sort_by_expert(to, rows, own);
}

void MixtureFeedForward::sort_by_expert(const Choices& choices, uint32_t rows, Own& own) const {
  const RouterShape& router = shape().router;
  std::fill_n(own.begin, router.experts + 1, 0u);
  for (uint32_t i = 0; i < rows * router.used; ++i) ++own.begin[choices.experts[i] + 1];
  for (uint32_t e = 0; e < router.experts; ++e) {
    own.begin[e + 1] += own.begin[e];
    own.next[e] = own.begin[e];
  }
  for (uint32_t r = 0; r < rows; ++r) {
    for (uint32_t i = r * router.used; i < (r + 1) * router.used; ++i) {
      const uint32_t slot = own.next[choices.experts[i]]++;
      own.rows[slot] = r;
      own.weights[slot] = choices.weights[i];
    }
  }
}

// The panels of all chosen experts, one behind the other, go to the workers in stretches of equal cost.
void MixtureFeedForward::routed_hidden(const Worker& worker, const MixtureWeights& weights,
                                       const NormedRows& x, Own& own) {
  const uint32_t panels = shape().ffn_dim / kPanelCols;
  const auto cost_of = [&](const Expert& e) { return e.rows() == 0 ? 0 : kPanelCost + e.rows(); };
  uint64_t total = 0;
  for (uint32_t id = 0; id < shape().router.experts; ++id) total += panels * cost_of(expert(own, id));
  const uint64_t from = total * worker.index() / worker.count();
  const uint64_t to = total * (worker.index() + 1) / worker.count();
  uint64_t first = 0;  // cost of the experts before
  for (uint32_t id = 0; id < shape().router.experts && first < to; ++id) {
    const Expert e = expert(own, id);
    if (e.rows() == 0) continue;
    const uint64_t cost = cost_of(e);
    const auto panel_at = [&](uint64_t bound) {  // even, for groups of 32 are quantised together
      return bound <= first
                 ? 0u
                 : static_cast<uint32_t>(std::min<uint64_t>(panels, (bound - first) / cost) / 2 * 2);
    };
    const uint32_t begin = panel_at(from), end = panel_at(to);
    if (begin < end) expert_hidden(worker, weights, e, gather(e, x, own), begin, end, own);
    first += panels * cost;
  }
}

// An expert's rows, one behind the other.
NormedRows MixtureFeedForward::gather(const Expert& e, const NormedRows& x, const Own& own) const {
  const uint32_t hidden = ops_.config().hidden_dim;
  const size_t groups = hidden / kGroup;
  const uint32_t first = own.rows[e.begin];
  if (own.rows[e.end - 1] - first + 1 == e.rows())  // they lie so
    return {x.values + size_t{first} * hidden, advance_groups(x.q, first * groups)};
  const NormedRows& out = own.gathered;
  for (uint32_t i = 0; i < e.rows(); ++i) {
    const uint32_t row = own.rows[e.begin + i];
    const QuantRows from = advance_groups(x.q, row * groups), to = advance_groups(out.q, i * groups);
    std::memcpy(to.q, from.q, hidden);
    std::memcpy(to.d, from.d, groups * sizeof(float));
    std::memcpy(to.ds, from.ds, groups * sizeof(float));
    std::memcpy(to.nsum, from.nsum, groups * sizeof(int32_t));
    std::memcpy(to.nsum16, from.nsum16, 2 * groups * sizeof(int32_t));
    if (out.values != nullptr)
      std::memcpy(out.values + size_t{i} * hidden, x.values + size_t{row} * hidden, hidden * sizeof(float));
  }
  return out;
}

// act(gate) * up of some panels of an expert, into its slots.
void MixtureFeedForward::expert_hidden(const Worker& worker, const MixtureWeights& weights, const Expert& e,
                                       const NormedRows& x, uint32_t panel_begin, uint32_t panel_end,
                                       const Own& own) {
  const PackedMatrix gate = weights.gate.of(e.id), up = weights.up.of(e.id);
  const size_t ffn = shape().ffn_dim;
  const uint32_t rows = e.rows();
  const uint32_t stretch = StepBuffers::stretch(rows, panel_end - panel_begin);
  for (uint32_t p = panel_begin; p < panel_end; p += stretch) {
    const uint32_t stop = std::min(panel_end, p + stretch);
    const uint32_t first = p * kPanelCols, count = (stop - p) * kPanelCols;
    ops_.multiply(worker, {gate, weights.gate.bias_of(e.id), p, stop}, x.q, x.values, rows, own.gate);
    ops_.multiply(worker, {up, weights.up.bias_of(e.id), p, stop}, x.q, x.values, rows, own.up);
    ops_.kernels().gated_act(ops_.config().activation, own.gate, own.up, rows * count, own.gate);
    ops_.kernels().quantize_rows(own.gate, count, rows, count, advance_groups(hidden_, first / kGroup),
                                 e.begin);
    if (hidden_values_ == nullptr) continue;
    for (uint32_t i = 0; i < rows; ++i)
      std::memcpy(hidden_values_ + (e.begin + i) * ffn + first, own.gate + size_t{i} * count,
                  count * sizeof(float));
  }
}

// Each worker adds up the columns of its own panels. Ends at a barrier.
void MixtureFeedForward::add_down(Worker& worker, const MixtureWeights& weights, uint32_t rows,
                                  const NormWeights& post_norm, const Own& own) const {
  const KernelTable& kernels = ops_.kernels();
  const size_t d = ops_.config().hidden_dim;
  const auto share = worker.share(d / kPanelCols, 2);
  const auto begin = static_cast<uint32_t>(share.first), end = static_cast<uint32_t>(share.second);
  float* sums = ops_.buffers().branch + size_t{begin} * kPanelCols;
  const uint32_t columns = (end - begin) * kPanelCols;
  for (uint32_t r = 0; r < rows; ++r) std::memset(sums + r * d, 0, columns * sizeof(float));
  for (uint32_t id = 0; id < shape().router.experts && begin < end; ++id) {
    const Expert e = expert(own, id);
    if (e.rows() == 0) continue;
    const QuantRows x = advance_groups(hidden_, e.begin * size_t{shape().ffn_dim / kGroup});
    const float* xf =
        hidden_values_ == nullptr ? nullptr : hidden_values_ + e.begin * size_t{shape().ffn_dim};
    const uint32_t stretch = StepBuffers::stretch(e.rows(), end - begin);
    for (uint32_t p = begin; p < end; p += stretch) {
      const uint32_t stop = std::min(end, p + stretch), count = (stop - p) * kPanelCols;
      ops_.multiply(worker, {weights.down.of(id), weights.down.bias_of(id), p, stop}, x, xf, e.rows(),
                    own.gate);
      for (uint32_t i = 0; i < e.rows(); ++i) {
        float* y = own.gate + size_t{i} * count;
        kernels.scale(own.weights[e.begin + i], count, y);
        kernels.add(y, count, sums + own.rows[e.begin + i] * d + (p - begin) * kPanelCols);
      }
    }
  }
  if (weights.shared.gate.present()) add_shared(worker, weights, rows, begin, end, own);
  ops_.add_columns(worker, begin * kPanelCols, columns, rows, post_norm);
}

void MixtureFeedForward::add_shared(const Worker& worker, const MixtureWeights& weights, uint32_t rows,
                                    uint32_t panel_begin, uint32_t panel_end, const Own& own) const {
  const KernelTable& kernels = ops_.kernels();
  const StepBuffers& b = ops_.buffers();
  const size_t d = ops_.config().hidden_dim;
  const QuantRows x = shared_.hidden_rows(weights.shared);
  const uint32_t stretch = StepBuffers::stretch(rows, panel_end - panel_begin);
  for (uint32_t p = panel_begin; p < panel_end; p += stretch) {
    const uint32_t stop = std::min(panel_end, p + stretch), count = (stop - p) * kPanelCols;
    ops_.multiply(worker, {weights.shared.down, weights.shared.down_bias, p, stop}, x, b.ffn, rows, own.gate);
    for (uint32_t r = 0; r < rows; ++r) {
      float* y = own.gate + size_t{r} * count;
      if (weights.shared_router.present()) kernels.scale(sigmoid(shared_logits_[r]), count, y);
      kernels.add(y, count, b.branch + r * d + p * kPanelCols);
    }
  }
}

}  // namespace kvasir
