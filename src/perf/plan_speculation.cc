#include "perf/plan_speculation.h"

#include <fmt/format.h>

#include <algorithm>

#include "perf/plan_derivation.h"
#include "perf/speculation_formulas.h"

namespace kvasir {
namespace {

constexpr uint32_t kDrafts[] = {1, 2, 3, 4, 6, 8};
constexpr double kAcceptances[] = {0.2, 0.4, 0.6, 0.8};
constexpr const char* kLeviathan = "Leviathan, Kalman and Matias 2023: https://arxiv.org/abs/2211.17192";

// The a of expected_tokens_per_step(a, drafts) = tokens, for tokens of 1 .. drafts + 1: it grows with a.
double acceptance_for(double tokens, uint32_t drafts) {
  double low = 0, high = 1;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (expected_tokens_per_step(middle, drafts) < tokens ? low : high) = middle;
  }
  return high;
}

}  // namespace

const PlanSpeculation::Row* PlanSpeculation::best() const {
  const Row* best = nullptr;
  for (const Row& row : rows) {
    if (speedup(row) > (best == nullptr ? 1 : speedup(*best))) best = &row;
  }
  return best;
}

double PlanSpeculation::speedup(const Row& row) const {
  return speculation_speedup(acceptance, row.drafts, 0, row.verify);
}

double PlanSpeculation::tokens(const Row& row) const {
  return expected_tokens_per_step(acceptance, row.drafts);
}

PlanSpeculation plan_speculation(const PlanInput& input, uint64_t batch, double acceptance) {
  PlanSpeculation s{.batch = batch, .acceptance = acceptance, .acceptances = {}, .rows = {}};
  s.acceptances.assign(std::begin(kAcceptances), std::end(kAcceptances));
  s.acceptances.push_back(acceptance);
  std::sort(s.acceptances.begin(), s.acceptances.end());
  s.acceptances.erase(std::unique(s.acceptances.begin(), s.acceptances.end()), s.acceptances.end());
  const double plain = time_per_token(input, batch);
  for (const uint32_t drafts : kDrafts) {
    PlanSpeculation::Row row{.drafts = drafts, .speedups = {}};
    row.verify = time_per_token(input, batch, drafts + 1) / plain;
    row.break_even =
        row.verify > drafts + 1.0 ? row.verify / (drafts + 1) : acceptance_for(row.verify, drafts);
    for (const double a : s.acceptances)
      row.speedups.push_back(speculation_speedup(a, drafts, 0, row.verify));
    s.rows.push_back(std::move(row));
  }
  return s;
}

std::string speculation_id(uint32_t drafts) {
  return fmt::format("speculation_{}_verify", drafts);
}

std::string speculation_id(uint32_t drafts, double acceptance) {
  return fmt::format("speculation_{}_at_{}_gain", drafts, id_part(fmt::format("{:.3g}", acceptance)));
}

void derive_plan_speculation(Derivation& derivation, const PlanSpeculation& s) {
  const std::string plain = best_id(derivation, batch_id(s.batch, "tpot"));
  for (const PlanSpeculation::Row& row : s.rows) {
    const std::string verify = speculation_id(row.drafts);
    derivation.add(
        {.id = verify,
         .title = fmt::format("time of a step with {} drafts over a plain one", row.drafts),
         .value = row.verify,
         .formula = "t / p",
         .inputs = {given("t", fmt::format("a step of {} rows for each of {}", row.drafts + 1, s.batch),
                          row.verify * derivation.value(plain), "s"),
                    of("p", plain)},
         .source = "the plan's time of a step, with more rows"});
    for (size_t i = 0; i < s.acceptances.size(); ++i) {
      const double a = s.acceptances[i];
      derivation.add({.id = speculation_id(row.drafts, a),
                      .title = fmt::format("gain of {} drafts a step", row.drafts),
                      .value = row.speedups[i],
                      .formula = a < 1 ? "(1 - a^(k + 1)) / (1 - a) / V" : "(a * k + 1) / V",
                      .inputs = {given("a", "chance that a draft is right", a),
                                 given("k", "drafts a step", row.drafts), of("V", verify)},
                      .source = kLeviathan});
    }
  }
}

}  // namespace kvasir
