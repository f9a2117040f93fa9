#pragma once

#include <string>

#include "apps/kvasir/plan_report.h"
#include "apps/kvasir/svg_chart.h"

namespace kvasir {

// The charts of a plan: the roofline with every kind of layer in prefill and decode, throughput and time per
// token against the batch, memory against the context.
Chart roofline_chart(const PlanReport& report);
Chart throughput_chart(const PlanReport& report);
Chart latency_chart(const PlanReport& report);
Chart memory_chart(const PlanReport& report);

// The four of them as one SVG file.
std::string plan_svg(const PlanReport& report);

// A page that stands alone: charts, tables (each number says by its tooltip how it came about) and every
// quantity's derivation. No script, nothing fetched.
std::string plan_page(const PlanReport& report);

}  // namespace kvasir
