#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "apps/kvasir/human_size.h"
#include "apps/kvasir/plan_report.h"
#include "perf/derivation.h"
#include "perf/plan_derivation.h"

namespace kvasir {

// Cells that print quantities of a report.
struct PlanPrinter {
  const Derivation& d;

  PlanCell size(const std::string& id) const { return {size_text(static_cast<uint64_t>(d.value(id))), id}; }
  PlanCell count(const std::string& id) const { return {count_text(static_cast<uint64_t>(d.value(id))), id}; }
  PlanCell whole(const std::string& id) const { return {number_text(d.value(id)), id}; }
  PlanCell duration(const std::string& id) const { return {duration_text(d.value(id)), id}; }
  PlanCell rate(const std::string& id) const {
    return {fmt::format("{:.{}f}", d.value(id), digits(d.value(id))), id};
  }
  // The prediction where there is one, else the floor.
  PlanCell best_duration(std::string_view floor) const { return duration(best_id(d, floor)); }
  PlanCell percent(const std::string& id) const { return {fmt::format("{:.0f} %", 100 * d.value(id)), id}; }
  static int digits(double value) { return value < 10 ? 2 : value < 100 ? 1 : 0; }
};

// The last two of plan_tables(): what speculation would give, and the advice.
PlanTable plan_speculation_table(const PlanReport& report);
PlanTable plan_advice_table(const PlanReport& report);

}  // namespace kvasir
