#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apps/kvasir/plan_report.h"
#include "perf/plan_derivation.h"
#include "server/json_writer.h"

namespace kvasir {
namespace {

constexpr size_t kAsWide = SIZE_MAX;  // no terminal whose columns count

std::vector<size_t> widths_of(const PlanTable& table) {
  std::vector<size_t> widths;
  for (const PlanTable::Column& column : table.columns) widths.push_back(column.name.size());
  for (const auto& row : table.rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].text.size());
  return widths;
}

// Indices of columns, in parts that fit side by side; every part begins with the first.
std::vector<std::vector<size_t>> fold(const std::vector<size_t>& widths, size_t columns) {
  std::vector<std::vector<size_t>> parts(1);
  size_t used = 1;
  for (size_t i = 0; i < widths.size(); ++i) {
    if (parts.back().size() > 1 && used + widths[i] + 3 > columns) {
      parts.push_back({0});
      used = 1 + widths[0] + 3;
    }
    parts.back().push_back(i);
    used += widths[i] + 3;
  }
  return parts;
}

std::string rows_text(const PlanTable& table, const std::vector<size_t>& widths,
                      const std::vector<size_t>& part) {
  const auto line = [&](const auto& text_of) {
    std::string out = "|";
    for (const size_t i : part)
      out += table.columns[i].number ? fmt::format(" {:>{}} |", text_of(i), widths[i])
                                     : fmt::format(" {:<{}} |", text_of(i), widths[i]);
    return out + "\n";
  };
  std::string out = line([&](size_t i) { return table.columns[i].name; }) + "|";
  for (const size_t i : part)
    out += fmt::format("{:-<{}}{}|", "", widths[i] + 1, table.columns[i].number ? ":" : "-");
  out += "\n";
  for (const auto& row : table.rows) out += line([&](size_t i) { return row[i].text; });
  return out;
}

// A sentence in lines of so many columns, those after the first indented.
std::string wrapped(std::string_view text, size_t columns, size_t indent = 0) {
  std::string out;
  size_t used = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' ', 1), text.size());
    if (used > indent && used + end > columns) {
      out += "\n" + std::string(indent, ' ');
      used = indent;
      const size_t word = text.find_first_not_of(' ');
      text.remove_prefix(word == std::string_view::npos ? text.size() : word);
      continue;
    }
    out += text.substr(0, end);
    used += end;
    text.remove_prefix(end);
  }
  return out + "\n";
}

std::string table_text(const PlanTable& table, size_t columns) {
  std::string out = fmt::format("\n### {}\n\n", table.title);
  if (!table.rows.empty()) {
    const std::vector<size_t> widths = widths_of(table);
    const auto parts = fold(widths, columns);
    for (size_t i = 0; i < parts.size(); ++i)
      out += (i == 0 ? "" : "\n") + rows_text(table, widths, parts[i]);
  }
  for (size_t i = 0; i < table.list.size(); ++i)
    out += (i == 0 ? "\n" : "") + wrapped(fmt::format("{}. {}", i + 1, table.list[i]), columns, 3);
  if (!table.note.empty()) out += (table.rows.empty() ? "" : "\n") + wrapped(table.note, columns);
  return out;
}

// A bar of `part` (0..1) of `width` columns: eighths of a block, or whole '#'.
std::string bar(double part, size_t width, bool blocks) {
  constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = static_cast<size_t>(part * static_cast<double>(width) * 8 + 0.5);
  const size_t full = blocks ? eighths / 8 : (eighths + 4) / 8;
  std::string out;
  for (size_t i = 0; i < full; ++i) out += blocks ? "█" : "#";
  size_t used = full;
  if (blocks && eighths % 8 > 0) {
    out += kEighths[eighths % 8];
    ++used;
  }
  return out + std::string(width > used ? width - used : 0, ' ');
}

// Throughput and time per token against the batch, as bars beside each other.
std::string plot_text(const PlanReport& report, size_t columns, bool blocks) {
  constexpr size_t kLabels = 2 + 7 + 2 + 9 + 3 + 9;  // what stands beside the bars
  const size_t width = columns > kLabels + 20 ? std::min<size_t>((columns - kLabels) / 2, 40) : 10;
  const Derivation& d = report.derivation;
  double fastest = 0, longest = 0;
  for (const uint64_t batch : report.batches) {
    fastest = std::max(fastest, d.value(best_id(d, batch_id(batch, "throughput"))));
    longest = std::max(longest, d.value(best_id(d, batch_id(batch, "tpot"))));
  }
  std::string out = fmt::format("\n{:>7}  {:<{}}   {}\n", "at once", "tokens/s", width + 9, "time per token");
  for (const uint64_t batch : report.batches) {
    const double rate = d.value(best_id(d, batch_id(batch, "throughput")));
    const double time = d.value(best_id(d, batch_id(batch, "tpot")));
    std::string line =
        fmt::format("{:>7}  {} {:>8.{}f}   {} {}", batch, bar(rate / fastest, width, blocks), rate,
                    rate < 10    ? 2
                    : rate < 100 ? 1
                                 : 0,
                    bar(time / longest, width, blocks), duration_text(time));
    out += line + "\n";
  }
  return out;
}

void outcome_json(JsonWriter& out, const PlanOutcome& o) {
  out.begin_object().field("times", o.predicted ? "predicted" : "floor").field("batch", o.batch);
  out.field("ttft_seconds", o.ttft).field("tpot_seconds", o.tpot);
  out.field("tokens_per_second", o.throughput).field("memory_bytes", o.memory_bytes);
  if (o.conversations)
    out.field("conversations", *o.conversations);
  else
    out.null_field("conversations");
  out.field("ttft_met", o.ttft_met).field("tpot_met", o.tpot_met).field("users_met", o.users_met);
  out.end_object();
}

void points_json(JsonWriter& out, const PlanReport& report) {
  out.key("points").begin_array();
  for (const uint64_t batch : report.batches) {
    const PlanPoint point = plan_point(report.request.input, batch);
    out.begin_object().field("batch", batch).field("tpot_seconds", point.seconds);
    out.field("tokens_per_second", point.throughput).field("memory_bytes", point.memory_bytes);
    out.field("floor_tpot_seconds", point.floor_seconds).field("bound", plan_bound_name(point.bound));
    if (point.mostly) {
      out.field("reached", point.floor_seconds / point.seconds);
      out.field("mostly", step_part_name(*point.mostly));
    }
    out.end_object();
  }
  out.end_array();
}

void quantities_json(JsonWriter& out, const PlanReport& report) {
  out.key("quantities").begin_array();
  for (const Quantity& q : report.derivation.quantities()) {
    out.begin_object()
        .field("id", q.id)
        .field("title", q.title)
        .field("value", q.value)
        .field("unit", q.unit);
    out.field("formula", q.formula).field("numbers", substituted(q)).field("source", q.source).end_object();
  }
  out.end_array();
}

}  // namespace

std::string plan_text(const PlanReport& report, size_t columns, bool terminal) {
  const size_t wide = terminal ? columns : kAsWide;
  std::string out;
  for (const std::string& line : plan_head(report)) out += wrapped(line, wide, 2);
  for (const PlanTable& table : plan_tables(report)) {
    out += table_text(table, wide);
    if (table.title.starts_with("Speed,")) out += plot_text(report, columns, terminal);
  }
  out += fmt::format("\n{}{}\n\n", report.serves ? "To serve it so:\n\n  " : "", report.serve);
  for (const std::string& note : plan_notes(report)) out += wrapped(note, wide);
  return out;
}

std::string plan_json(const PlanReport& report) {
  const PlanInput& in = report.request.input;
  JsonWriter out;
  out.begin_object().field("model", in.shape.name).field("architecture", in.shape.architecture);
  out.field("machine", in.machine.name).field("machine_source", in.machine.source);
  out.field("weights", in.weight_format().name).field("kv_cache_dtype", in.kv.name);
  out.field("context", in.context).field("prompt", in.prompt).field("shared_prefix", in.shared_prefix);
  out.field("times", in.predictor ? "predicted" : "floor");
  if (!in.predictor) out.field("no_prediction", report.request.no_prediction);
  out.key("goals").begin_object();
  const PlanGoals& goals = report.request.goals;
  if (goals.users) out.field("users", *goals.users);
  if (goals.ttft_seconds) out.field("ttft_seconds", *goals.ttft_seconds);
  if (goals.tpot_seconds) out.field("tpot_seconds", *goals.tpot_seconds);
  out.end_object().key("outcome");
  outcome_json(out, report.outcome);
  points_json(out, report);
  out.field("objective", plan_objective_name(report.objective)).key("advice").begin_array();
  for (const PlanAdvice& a : report.advice) {
    out.begin_object().field("id", a.id).field("gain", a.gain).field("change", a.change).field("how", a.how);
    out.key("after");
    outcome_json(out, a.after);
    out.end_object();
  }
  out.end_array();
  if (report.serves)
    out.field("serve", report.serve);
  else
    out.null_field("serve");
  quantities_json(out, report);
  out.end_object();
  return out.take() + "\n";
}

}  // namespace kvasir
