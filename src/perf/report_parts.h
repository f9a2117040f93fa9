#pragma once

#include "perf/derivation.h"
#include "perf/performance_formulas.h"

// Shared by the files that make up derive_performance().
namespace kvasir::report {

inline constexpr const char* kBook =
    "How to Scale Your Model, \"Inference\": https://jax-ml.github.io/scaling-book/inference";
inline constexpr const char* kTransformers =
    "How to Scale Your Model, \"Transformers\": https://jax-ml.github.io/scaling-book/transformers";
inline constexpr const char* kDeepSeek = "DeepSeek-V2, section 2: https://arxiv.org/abs/2405.04434";
inline constexpr const char* kRoofline =
    "Williams, Waterman and Patterson 2009, Roofline: https://doi.org/10.1145/1498765.1498785";
inline constexpr const char* kFlops = "Kaplan et al. 2020, section 2.1: https://arxiv.org/abs/2001.08361";

// The report that is being put together.
struct Report {
  const ModelShape& shape;
  const PerformanceOptions& options;
  const PerformanceStats& stats;
  Derivation& out;

  // As functions of parameter_formulas.h take it.
  const WeightFormat* format() const { return options.weights ? &*options.weights : nullptr; }
};

inline QuantityInput width(const ModelShape& s) {
  return given("D", "width", s.hidden);
}
inline QuantityInput layer_count(const ModelShape& s) {
  return given("L", "layers", s.layers);
}
inline QuantityInput query_heads(const ModelShape& s) {
  return given("N", "query heads", s.heads);
}
inline QuantityInput batch(const Report& r) {
  return given("B", "sequences that decode together", static_cast<double>(r.options.batch));
}
inline QuantityInput length(const Report& r) {
  return given("S", "positions of a sequence", static_cast<double>(r.options.sequence));
}

// The quantities from `parameters` to `parameter_bytes`.
void add_parameters(const Report& report);

}  // namespace kvasir::report
