#include "perf/step_terms.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "perf/perf_model.h"

namespace kvasir {
namespace {

void add_work(StepTerms::Work& work, double count, double seconds) {
  const double sum = work.seconds() + seconds;
  work.count += count;
  work.each = work.count > 0 ? sum / work.count : 0;
}

}  // namespace

double StepTerms::linear_seconds() const {
  double sum = 0;
  for (const Linear& l : linear) sum += l.seconds(away);
  return sum;
}

double StepTerms::seconds() const {
  return linear_seconds() + logits.seconds() + scans.seconds() + attention_seconds() + row_seconds() +
         phases.seconds() + barriers.seconds() - left_out.seconds();
}

void PerfModel::add_terms(std::span<const StepRows> sequences, LogitRows logits, StepTerms& t) const {
  StepLoad load;
  Calls calls;  // of all threads together
  add_all(load, sequences, logits);
  for (const StepRows& s : sequences) {
    for (const Group& group : groups_) calls += calls_of(s, group);
  }
  CHECK(load.rows <= options_.max_rows && logits.rows <= options_.max_logit_rows);
  if (load.rows == 0) return;
  if (t.linear.empty()) {
    for (const Linear& l : linear_)
      t.linear.push_back({.type = l.type,
                          .head = l.head,
                          .experts = l.experts,
                          .values = l.values,
                          .uneven = l.weighed / l.values});
  }
  t.away = away_;
  t.threads = options_.threads;
  for (size_t i = 0; i < linear_.size(); ++i) {
    const uint32_t rows = linear_[i].head ? logits.rows : load.rows;
    if (rows == 0) continue;
    const Rates rates = rates_of(linear_[i], rows);
    ++t.linear[i].steps;
    t.linear[i].cached += rates.cached;
    t.linear[i].memory += rates.memory;
  }
  const double threads = options_.threads, rows = load.rows, most = std::ceil(load.rows / threads);
  add_work(t.logits, logits_bytes(logits.whole), logits_bytes(logits.whole) / read_);
  add_work(t.scans, logits.rows - logits.whole, (logits.rows - logits.whole) * rest_.scan);
  // Rows that stand alone are made ready in attention's calls.
  const double alone = 1 - ready_part(load);
  add_work(t.calls, calls.count, calls.fixed + rows * alone * rest_.ready);
  add_work(t.positions, calls.positions, calls.all - calls.fixed);
  t.waiting += attention_seconds(load) - (calls.all + rows * alone * rest_.ready) / threads;
  const double normed = norms_alone(load.rows) ? rows : most;
  add_work(t.norms, normed, normed * rest_.norms);
  add_work(t.alone, most, most * (rest_.alone + ready_part(load) * rest_.ready));
  add_work(t.shared, rows, rows * rest_.shared);
  const double heads = std::ceil(logits.rows / threads);
  add_work(t.head_rows, heads, heads * rest_.head);
  const double phases = rest_.phases + (logits.rows > 0 ? 1 : 0);
  add_work(t.phases, phases, phases * rest_.phase);
  const double barriers = barriers_of(load);
  add_work(t.barriers, barriers, barriers * rest_.barrier);
  double less = 0;
  for (const double seconds : left_out_seconds(load)) less += seconds;
  add_work(t.left_out, load.left_out, less);
}

}  // namespace kvasir
