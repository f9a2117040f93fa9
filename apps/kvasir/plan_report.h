#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/kvasir/plan_request.h"
#include "perf/derivation.h"
#include "perf/plan_advice.h"

namespace kvasir {

// A cell of a table: what it shows, and the quantity whose number that is ("" for words).
struct PlanCell {
  std::string text;
  std::string quantity = {};
};

// One table of the report, whatever it is printed as.
struct PlanTable {
  std::string title;
  std::string note = {};  // one sentence under it
  struct Column {
    std::string name;
    bool number = true;  // stands at the right
  };
  std::vector<Column> columns = {};
  std::vector<std::vector<PlanCell>> rows = {};
  std::vector<std::string> list = {};  // under the rows, one sentence for each
};

// Everything `kvasir plan` says.
struct PlanReport {
  PlanRequest request;
  std::vector<uint64_t> batches;
  Derivation derivation;
  PlanOutcome outcome;
  PlanObjective objective = PlanObjective::kTpot;
  std::vector<PlanAdvice> advice;
  PlanSpeculation speculation;
  std::string serve;  // the command that serves it so; why there is none otherwise
  bool serves = false;
};
Result<PlanReport> make_plan_report(PlanRequest request);

// The report's tables, in order: model, formats, speed, contexts, goals (when there are any), speculation,
// advice. Every number is a quantity of the derivation.
std::vector<PlanTable> plan_tables(const PlanReport& report);

// What the plan stands on, in a few lines: model, machine, context, widths.
std::vector<std::string> plan_head(const PlanReport& report);
// What the numbers mean, and what was assumed.
std::vector<std::string> plan_notes(const PlanReport& report);

// "12.3 ms", "1.25 s", "2 min 5 s"; three significant digits.
std::string duration_text(double seconds);

// As Markdown tables and a plot of so many columns. For a terminal with block characters, wide tables in
// parts that fit, and sentences wrapped; else in ASCII and as wide as it comes.
std::string plan_text(const PlanReport& report, size_t columns, bool terminal);
std::string plan_json(const PlanReport& report);

// The ids of the derivation with their values, one per line.
std::string plan_quantities(const PlanReport& report);

}  // namespace kvasir
