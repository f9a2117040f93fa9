#pragma once

#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "models/feed_forward.h"
#include "models/layer_ops.h"
#include "models/step_profile.h"

namespace kvasir {

// The feed-forward part of a layer with experts: a router sends each row to a few of them, and what those
// compute is added up, with the router's weights and in ascending order of experts, then that of the experts
// that every row passes through (docs/numerics.md, rule 6). Rows are gathered by expert, so that the weights
// of an expert that some row chose are read once for all its rows, and those of the others never. Everything
// is allocated at construction.
class MixtureFeedForward {
 public:
  // Both outlive it. `layers` says which floats are needed beside quantised rows.
  MixtureFeedForward(const LayerOps& ops, std::span<const LayerWeights> layers, uint32_t max_rows,
                     uint32_t threads);

  size_t bytes() const { return memory_.size(); }

  // All threads together; reads x, adds to the residual stream, ends at a barrier.
  void run(Worker& worker, const MixtureWeights& weights, const NormedRows& x, uint32_t rows,
           const NormWeights& post_norm, PhaseClock& clock);

 private:
  // Which experts the rows chose and what their results count, [rows][used].
  struct Choices {
    uint32_t* experts = nullptr;
    float* weights = nullptr;
  };
  // What each worker keeps for itself. A slot is a row's place at one of its experts; slots are in the order
  // of experts, then of rows.
  struct Own {
    Choices few;                // of steps of up to StepBuffers::kOwnRows rows
    uint32_t* begin = nullptr;  // [experts + 1] the first slot of each
    uint32_t* next = nullptr;   // [experts]
    uint32_t* rows = nullptr;   // [slots]
    float* weights = nullptr;   // [slots]
    NormedRows gathered;        // [max_rows][hidden], values only where matrices of floats read them
    float* gate = nullptr;      // the step's tiles: some columns of an expert's rows
    float* up = nullptr;
  };
  // What one worker does of a part: an expert's slots [begin, end).
  struct Expert {
    uint32_t id, begin, end;
    uint32_t rows() const { return end - begin; }
  };
  size_t lay_out(std::byte* base, bool gathers_floats, bool keeps_floats);
  const MixtureShape& shape() const { return ops_.config().mixture; }
  Expert expert(const Own& own, uint32_t id) const { return {id, own.begin[id], own.begin[id + 1]}; }
  void route(Worker& worker, const MixtureWeights& weights, uint32_t rows, Own& own);
  void sort_by_expert(const Choices& choices, uint32_t rows, Own& own) const;
  void routed_hidden(const Worker& worker, const MixtureWeights& weights, const NormedRows& x, Own& own);
  NormedRows gather(const Expert& e, const NormedRows& x, const Own& own) const;
  void expert_hidden(const Worker& worker, const MixtureWeights& weights, const Expert& e,
                     const NormedRows& x, uint32_t panel_begin, uint32_t panel_end, const Own& own);
  void add_down(Worker& worker, const MixtureWeights& weights, uint32_t rows, const NormWeights& post_norm,
                const Own& own) const;
  void add_shared(const Worker& worker, const MixtureWeights& weights, uint32_t rows, uint32_t panel_begin,
                  uint32_t panel_end, const Own& own) const;

  const LayerOps& ops_;
  GatedFeedForward shared_;
  uint32_t max_rows_;
  AlignedBuffer memory_;
  float* logits_ = nullptr;         // [max_rows][experts]
  float* shared_logits_ = nullptr;  // [max_rows]
  Choices choices_;
  QuantRows hidden_;                // [slots][ffn] what experts make of their rows, before `down`
  float* hidden_values_ = nullptr;  // the same as floats, where matrices of floats read them
  std::vector<Own> own_;
};

}  // namespace kvasir
