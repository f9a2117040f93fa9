#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "apps/kvasir/plan_printer.h"

namespace kvasir {
namespace {

std::string speculation_note(const PlanSpeculation& s) {
  const std::string at = fmt::format("At {} at once and a chance of {:.3g} ", s.batch, s.acceptance);
  const PlanSpeculation::Row* best = s.best();
  if (best != nullptr)
    return fmt::format("{}{} draft{} a step give{} {:.2f} tokens for {:.2f} steps' time: {:.2f}x.", at,
                       best->drafts, best->drafts == 1 ? "" : "s", best->drafts == 1 ? "s" : "",
                       s.tokens(*best), best->verify, s.speedup(*best));
  const PlanSpeculation::Row& one = s.rows.front();
  return fmt::format(
      "{}it would not pay: one draft makes a step {:.2f} times as long, and {}.", at, one.verify,
      one.break_even < 1 ? fmt::format("would have to be right more often than {:.2f}", one.break_even)
                         : "even one that is always right only makes up for that");
}

}  // namespace

PlanTable plan_speculation_table(const PlanReport& report) {
  const PlanPrinter p{report.derivation};
  const PlanSpeculation& s = report.speculation;
  PlanTable t{
      .title = fmt::format("Speculation at {} at once: gain, if a draft is right with a chance of", s.batch),
      .note =
          speculation_note(s) +
          " Drafts are taken to cost nothing, as those of `--speculate ngram`, which copies from the text; "
          "`--speculate draft=FILE` and `layers=N` pay for passes of their own too.",
      .columns = {{"drafts", true}, {"step takes", true}, {"pays above", true}}};
  for (const double a : s.acceptances) t.columns.push_back({fmt::format("{:.3g}", a), true});
  for (const PlanSpeculation::Row& row : s.rows) {
    const std::string verify = speculation_id(row.drafts);
    std::vector<PlanCell> cells = {{std::to_string(row.drafts)},
                                   {fmt::format("{:.2f}x", p.d.value(verify)), verify},
                                   {row.break_even < 1 ? fmt::format("{:.2f}", row.break_even) : "never"}};
    for (const double a : s.acceptances) {
      const std::string id = speculation_id(row.drafts, a);
      cells.push_back({fmt::format("{:.2f}x", p.d.value(id)), id});
    }
    t.rows.push_back(std::move(cells));
  }
  return t;
}

PlanTable plan_advice_table(const PlanReport& report) {
  const PlanPrinter p{report.derivation};
  const bool judged = report.request.goals.any();
  PlanTable t{.title = fmt::format("What would help, by gain in {}", plan_objective_name(report.objective)),
              .columns = {{"", true},
                          {"gain", true},
                          {"first token", true},
                          {"per token", true},
                          {"fit", true},
                          {"id", false}}};
  if (judged) t.columns.insert(t.columns.begin() + 5, {"all met", false});
  t.note =
      fmt::format("Each is the whole plan run again with that one change, {} at once.", report.outcome.batch);
  const auto floor = [](const PlanAdvice& a) { return !a.after.predicted; };
  const bool mixed =
      report.outcome.predicted && std::any_of(report.advice.begin(), report.advice.end(), floor);
  if (mixed) {
    t.columns.insert(t.columns.end() - 1, {"times", false});
    t.note += " Where \"times\" says floor, nobody measured these kernels: floors, gained on a floor.";
  }
  size_t rank = 0;
  for (const PlanAdvice& a : report.advice) {
    const std::string prefix = fmt::format("advice_{}_", a.id);
    std::vector<PlanCell> row = {{std::to_string(++rank)},
                                 {fmt::format("{:.2f}x", p.d.value(prefix + "gain")), prefix + "gain"},
                                 p.duration(prefix + "ttft"),
                                 p.duration(prefix + "tpot"),
                                 a.after.conversations ? p.whole(prefix + "conversations") : PlanCell{"?"},
                                 {a.id}};
    const char* met = !a.after.all_met() ? "no" : mixed && floor(a) ? "at best" : "yes";
    if (judged) row.insert(row.begin() + 5, {met});
    if (mixed) row.insert(row.end() - 1, {floor(a) ? "floor" : "predicted"});
    t.rows.push_back(std::move(row));
    t.list.push_back(fmt::format("{}: {}", a.change, a.how));
  }
  if (t.rows.empty()) t.note = "Nothing that this plan knows of.";
  return t;
}

}  // namespace kvasir
