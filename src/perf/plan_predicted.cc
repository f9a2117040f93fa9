#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/dtype.h"
#include "perf/plan_derivation.h"
#include "perf/plan_parts.h"
#include "perf/step_terms.h"

// The quantities of what the kernels reach: every number of StepTerms with its rate.
namespace kvasir::plan_parts {
namespace {

struct Predicted {
  const Parts& p;
  const Step& step;
  const StepTerms terms;
  const std::string prefix = "predicted_" + step.prefix;
  const std::string source = p.input.machine.source + ", kernel rates";
  Quantity sum = {};

  void add(const std::string& id, std::string title, double value, std::string formula,
           std::vector<QuantityInput> inputs) {
    if (value == 0) return;
    p.out.add({.id = prefix + id,
               .title = fmt::format("{} in {}", title, step.name),
               .value = value,
               .unit = "s",
               .formula = std::move(formula),
               .inputs = std::move(inputs),
               .source = source});
    const auto symbol = std::string(1, static_cast<char>('a' + static_cast<int>(sum.inputs.size())));
    sum.formula += (sum.formula.empty() ? "" : " + ") + symbol;
    sum.inputs.push_back(of(symbol, prefix + id));
  }

  void linear();
  void attention();
  void rest();
};

void Predicted::linear() {
  for (const StepTerms::Linear& l : terms.linear) {
    const std::string format(dtype_info(l.type).name);
    const std::string in = l.steps == 1 ? "" : fmt::format(", summed over {:.0f} steps", l.steps);
    const bool routed = l.experts > 0;
    const std::string chosen = routed ? ", the mean over chosen experts and others" : "";
    add(fmt::format("{}_{}",
                    l.head   ? "head"
                    : routed ? "experts"
                             : "linear",
                    format),
        fmt::format("{} as {}",
                    l.head   ? "the output head"
                    : routed ? "the experts"
                             : "the layers' matrices",
                    format),
        l.seconds(terms.away), "n * u * (c + p * (m - c))",
        {given("n", "weights, panels filled up", l.values),
         given("u", "panels of the thread with most over an even share", l.uneven),
         given("c", "time of a weight from cache" + chosen + in, l.cached, "s"),
         given("m", "time of a weight from memory" + chosen + in, l.memory, "s"),
         given("p", "part of the weights that no cache holds", terms.away)});
  }
  add("logits", "logits written to memory", terms.logits.seconds(), "b * r",
      {given("b", "bytes, fetched and written back", terms.logits.count, "bytes"),
       given("r", "time of a byte", terms.logits.each, "s")});
  add("best", "looking for the best logits", terms.scans.seconds(), "n * e",
      {given("n", "rows", terms.scans.count), given("e", "time of one", terms.scans.each, "s")});
}

void Predicted::attention() {
  add("attention", "attention", terms.attention_seconds(), "(n * c + v * p) / T + w",
      {given("n", "calls of the kernel", terms.calls.count),
       given("c", "time of a thread for a call", terms.calls.each, "s"),
       given("v", "positions that they walk over", terms.positions.count),
       given("p", "time of a thread for a position, the mean over the calls", terms.positions.each, "s"),
       given("T", "threads", terms.threads),
       given("w", "what threads wait for the longest call", terms.waiting, "s")});
}

void Predicted::rest() {
  add("rows", "norms, activations and other work on rows", terms.row_seconds(),
      "m * o + n * e + r * s + g * h",
      {given("m", "rows that the thread with most norms", terms.norms.count),
       given("o", "time of one of them, in all layers", terms.norms.each, "s"),
       given("n", "rows of the thread with most, for what comes beside norms", terms.alone.count),
       given("e", "time of one of them, in all layers", terms.alone.each, "s"),
       given("r", "rows", terms.shared.count),
       given("s", "time of one, for what threads share", terms.shared.each, "s"),
       given("g", "rows for logits, of the thread with most", terms.head_rows.count),
       given("h", "time of one of them", terms.head_rows.each, "s")});
  add("phases", "beginnings and ends of matrices", terms.phases.seconds(), "n * e",
      {given("n", "phases of matrices", terms.phases.count),
       given("e", "time that streams take to begin and threads to meet", terms.phases.each, "s")});
  add("barriers", "other barriers", terms.barriers.seconds(), "n * e",
      {given("n", "barriers", terms.barriers.count), given("e", "time of one", terms.barriers.each, "s")});
  add("left_out", "what the last layer leaves out of rows that want no logits", -terms.left_out.seconds(),
      "-n * e",
      {given("n", "such rows", terms.left_out.count),
       given("e", "time of one behind the layer's K and V", terms.left_out.each, "s")});
}

}  // namespace

void add_predicted(const Parts& p, const Step& step, const std::string& total, const std::string& title) {
  if (!p.input.predictor) return;
  Predicted predicted{.p = p, .step = step, .terms = p.input.predictor->terms(step.shape)};
  predicted.linear();
  predicted.attention();
  predicted.rest();
  Quantity sum = std::move(predicted.sum);
  sum.id = predicted_id(total);
  sum.title = title + ", predicted";
  sum.value = p.input.predictor->predict(step.shape).seconds;
  sum.unit = "s";
  sum.source = "the engine's model of its steps (src/perf/perf_model.h), by which it schedules";
  p.out.add(std::move(sum));
  p.out.add({.id = reached_id(total),
             .title = fmt::format("part of the floor's speed that {} reaches", step.name),
             .value = p.out.value(total) / p.out.value(predicted_id(total)),
             .formula = "f / t",
             .inputs = {of("f", total), of("t", predicted_id(total))},
             .source = kRoofline});
}

}  // namespace kvasir::plan_parts
