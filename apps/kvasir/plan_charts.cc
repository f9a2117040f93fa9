#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "apps/kvasir/plan_page.h"

namespace kvasir {
namespace {

constexpr double kGiga = 1e9, kGiB = 1073741824.0;
constexpr const char* kColours[] = {"#0b6fb8", "#c4451c", "#1f8a4c", "#8a3fb0", "#a07400"};
constexpr const char* kGoalColour = "#b00020";

// The roof over kinds that multiply numbers of so many bits.
ChartSeries roof(const MachineSpec& machine, uint32_t bits, double bandwidth, double from, double to,
                 std::string name, bool dashed) {
  const double peak = reachable_flops(machine, bits) / kGiga, slope = bandwidth / kGiga;
  ChartSeries s{.name = std::move(name), .colour = "#555555", .dashed = dashed};
  const double ridge = std::clamp(peak / slope, from, to);
  for (const double x : {from, ridge, to}) s.points.emplace_back(x, std::min(peak, slope * x));
  return s;
}

// The kinds of a step, later ones smaller, so that those in one place show as rings around each other.
void add_kinds(Chart& chart, const StepTime& time, const char* phase, ChartSeries::Mark mark) {
  size_t i = 0;
  for (const KindTime& kind : time.kinds) {
    if (kind.work.bytes() <= 0 || kind.work.flops <= 0) continue;
    const double size = mark == ChartSeries::Mark::kRing ? 12.0 - 2.2 * static_cast<double>(i)
                                                         : 7.0 - 1.1 * static_cast<double>(i);
    chart.series.push_back({.name = fmt::format("{}, {}", kind.name, phase),
                            .colour = kColours[i++ % std::size(kColours)],
                            .points = {{kind.work.intensity(), kind.work.flops / kind.seconds() / kGiga}},
                            .line = false,
                            .mark = mark,
                            .size = size});
  }
}

void add_goal(Chart& chart, std::string name, double y) {
  double least = 1e300, most = 0;
  for (const ChartSeries& series : chart.series) {
    for (const auto& [x, value] : series.points) {
      least = std::min(least, x);
      most = std::max(most, x);
    }
  }
  chart.series.push_back(
      {.name = std::move(name), .colour = kGoalColour, .points = {{least, y}, {most, y}}, .dashed = true});
}

}  // namespace

Chart roofline_chart(const PlanReport& report) {
  const PlanInput& in = report.request.input;
  const uint64_t batch = report.outcome.batch;
  Chart chart{.title = "Roofline: what each kind of layer can reach",
              .x_title = "FLOPs per byte read",
              .y_title = "GFLOP/s",
              .log_x = true,
              .log_y = true};
  const StepTime prefill = step_time(in, prefill_step(in)), decode = step_time(in, decode_step(in, batch));
  double from = 0.5, to = 100;
  double bytes = 0;
  for (const StepTime* time : {&prefill, &decode}) {
    for (const KindTime& kind : time->kinds) {
      const double intensity = kind.work.intensity();
      if (intensity <= 0) continue;
      from = std::min(from, intensity / 2);
      to = std::max(to, intensity * 2);
      if (time == &decode) bytes += kind.work.bytes();
    }
  }
  const double bandwidth = reachable_bandwidth(in.machine, bytes);
  const uint32_t matrix = matrix_bits(in), attention = attention_bits(in);
  to = std::max(to, 4 * reachable_flops(in.machine, matrix) / bandwidth);
  chart.series.push_back(
      roof(in.machine, matrix, bandwidth, from, to,
           fmt::format("roof of the matrices ({} bits), {:.4g} GB/s", matrix, bandwidth / kGiga), false));
  if (attention != matrix)
    chart.series.push_back(roof(in.machine, attention, bandwidth, from, to,
                                fmt::format("roof of attention ({} bits)", attention), true));
  add_kinds(chart, decode, fmt::format("decode of {}", batch).c_str(), ChartSeries::Mark::kRing);
  add_kinds(chart, prefill, "prefill", ChartSeries::Mark::kDisc);
  return chart;
}

Chart throughput_chart(const PlanReport& report) {
  Chart chart{.title = "Throughput against conversations at once",
              .x_title = "conversations at once",
              .y_title = "tokens/s of all together",
              .log_x = true};
  ChartSeries fits{.name = "fits in memory", .colour = kColours[0], .mark = ChartSeries::Mark::kDisc};
  ChartSeries beyond{
      .name = "does not fit", .colour = kColours[1], .line = false, .mark = ChartSeries::Mark::kRing};
  ChartSeries floor{.name = "at most, by the machine", .colour = kColours[2], .dashed = true};
  for (const uint64_t batch : report.batches) {
    const PlanPoint point = plan_point(report.request.input, batch);
    ChartSeries& series = point.bound == PlanBound::kMemorySize ? beyond : fits;
    const auto x = static_cast<double>(batch);
    series.points.emplace_back(x, point.throughput);
    if (point.mostly) floor.points.emplace_back(x, x / point.floor_seconds);
  }
  for (ChartSeries* series : {&fits, &beyond, &floor})
    if (!series->points.empty()) chart.series.push_back(std::move(*series));
  return chart;
}

Chart latency_chart(const PlanReport& report) {
  Chart chart{.title = "Time per output token against conversations at once",
              .x_title = "conversations at once",
              .y_title = "milliseconds",
              .log_x = true,
              .log_y = true};
  const PlanInput& in = report.request.input;
  ChartSeries predicted{.name = "predicted", .colour = kColours[1], .mark = ChartSeries::Mark::kDisc};
  ChartSeries total{
      .name = "at least, by the machine", .colour = kColours[0], .mark = ChartSeries::Mark::kDisc};
  ChartSeries read{.name = "reading alone", .colour = kColours[2], .dashed = true};
  ChartSeries compute{.name = "computing alone", .colour = kColours[3], .dashed = true};
  for (const uint64_t batch : report.batches) {
    const StepTime time = step_time(in, decode_step(in, batch));
    const auto x = static_cast<double>(batch);
    if (in.predictor) predicted.points.emplace_back(x, 1e3 * time_per_token(in, batch));
    total.points.emplace_back(x, 1e3 * time.seconds());
    read.points.emplace_back(x, 1e3 * time.read_seconds());
    compute.points.emplace_back(x, 1e3 * time.compute_seconds());
  }
  chart.series = {total, read, compute};
  if (in.predictor) chart.series.insert(chart.series.begin(), std::move(predicted));
  if (const auto& goal = report.request.goals.tpot_seconds) add_goal(chart, "asked", 1e3 * *goal);
  return chart;
}

Chart memory_chart(const PlanReport& report) {
  PlanInput in = report.request.input;
  in.shared_prefix = 0;
  Chart chart{.title = "Memory against context",
              .x_title = "tokens of a conversation",
              .y_title = "GiB",
              .log_x = true,
              .log_y = true};
  const uint64_t longest = std::max<uint64_t>(in.shape.max_context, in.context);
  std::vector<uint64_t> batches = {1, 8, 32};
  if (report.request.goals.users && *report.request.goals.users > 1)
    batches = {1, *report.request.goals.users};
  size_t colour = 0;
  for (const uint64_t batch : batches) {
    ChartSeries series{.name = fmt::format("{} at once", batch), .colour = kColours[colour++]};
    for (uint64_t context = std::min<uint64_t>(256, longest); context <= longest;
         context = context == longest ? longest + 1 : std::min(context * 2, longest)) {
      in.context = context;
      series.points.emplace_back(static_cast<double>(context), memory_needed(in, batch) / kGiB);
    }
    chart.series.push_back(std::move(series));
  }
  if (in.machine.memory_bytes > 0)
    add_goal(chart, "memory there is", static_cast<double>(in.machine.memory_bytes) / kGiB);
  return chart;
}

std::string plan_svg(const PlanReport& report) {
  constexpr double kWidth = 560, kHeight = 440, kGap = 20, kHead = 40;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"DejaVu Sans, Arial, sans-serif\" font-size=\"11\" fill=\"#222222\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      2 * kWidth + kGap, kHead + 2 * kHeight + kGap);
  const PlanInput& in = report.request.input;
  out += fmt::format("<text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"bold\">{}</text>\n",
                     xml_text(fmt::format("{} as {} on {}, context {}", in.shape.name,
                                          in.weight_format().name, in.machine.name, in.context)));
  out += svg_chart(roofline_chart(report), {0, kHead, kWidth, kHeight});
  out += svg_chart(memory_chart(report), {kWidth + kGap, kHead, kWidth, kHeight});
  out += svg_chart(throughput_chart(report), {0, kHead + kHeight + kGap, kWidth, kHeight});
  out += svg_chart(latency_chart(report), {kWidth + kGap, kHead + kHeight + kGap, kWidth, kHeight});
  return out + "</svg>\n";
}

}  // namespace kvasir
