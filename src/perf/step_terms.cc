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
  return linear_seconds() + logits.seconds() + attention_seconds() + row_seconds() + barriers.seconds();
}

void PerfModel::add_terms(std::span<const StepRows> sequences, uint32_t logit_rows, StepTerms& t) const {
  StepLoad load;
  Calls calls;  // of all threads together
  for (const StepRows& s : sequences) {
    add(load, s, 0);
    for (const Group& group : groups_) calls += calls_of(s, group);
  }
  CHECK(load.rows <= options_.max_rows && logit_rows <= options_.max_logit_rows);
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
    const uint32_t rows = linear_[i].head ? logit_rows : load.rows;
    if (rows == 0) continue;
    const Rates rates = rates_of(linear_[i], rows);
    ++t.linear[i].steps;
    t.linear[i].cached += rates.cached;
    t.linear[i].memory += rates.memory;
  }
  const double threads = options_.threads;
  add_work(t.logits, logits_bytes(logit_rows), logits_bytes(logit_rows) / read_);
  add_work(t.calls, calls.count, calls.fixed);
  add_work(t.positions, calls.positions, calls.all - calls.fixed);
  t.waiting += attention_seconds(load) - load.attention / threads;
  add_work(t.alone, std::ceil(load.rows / threads), std::ceil(load.rows / threads) * rest_.alone);
  add_work(t.shared, load.rows, load.rows / threads * rest_.shared);
  add_work(t.head_rows, std::ceil(logit_rows / threads), std::ceil(logit_rows / threads) * rest_.head);
  add_work(t.barriers, rest_.barriers, rest_.barriers * rest_.barrier_seconds);
}

}  // namespace kvasir
