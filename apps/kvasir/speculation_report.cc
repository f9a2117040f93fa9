#include "apps/kvasir/speculation_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <numeric>

#include "apps/kvasir/svg_chart.h"
#include "perf/speculation_formulas.h"

namespace kvasir {
namespace {

double drafted_per_draft(const SpeculationRow& row) {
  return row.drafts == 0 ? 0 : static_cast<double>(row.drafted) / static_cast<double>(row.drafts);
}

// Conditional acceptance by place: of the drafts whose guesses before it were right.
std::string by_place(const SpeculationRow& row) {
  std::string text;
  uint64_t reached = row.drafts;
  const size_t places = std::min<size_t>(row.variant.k.value_or(4), 4);
  for (size_t place = 0; place < places && reached > 0; ++place) {
    text += fmt::format("{}{:.0f}", place == 0 ? "" : " ",
                        100.0 * static_cast<double>(row.accepted_at[place]) / static_cast<double>(reached));
    reached = row.accepted_at[place];
  }
  return text;
}

// Which part of the steps verified nothing, and the reason that most of these had.
std::string without_guesses(const SpeculationRow& row) {
  const uint64_t without = std::accumulate(row.without.begin(), row.without.end(), uint64_t{0});
  if (without == 0) return "";
  const auto most = std::max_element(row.without.begin(), row.without.end()) - row.without.begin();
  return fmt::format("{:.0f} % {}",
                     100.0 * static_cast<double>(without) / static_cast<double>(without + row.drafts),
                     no_draft_name(static_cast<NoDraft>(most)));
}

boost::json::object json_of(const SpeculationRow& row) {
  boost::json::object o;
  o["workload"] = row.workload;
  o["batch"] = row.batch;
  o["drafter"] = row.variant.drafter;
  o["k"] = row.variant.k ? boost::json::value(*row.variant.k) : boost::json::value(nullptr);
  o["tokens_per_second"] = row.median;
  o["samples"] = boost::json::value_from(row.tokens_per_second);
  o["gain"] = row.gain;
  o["drafts"] = row.drafts;
  o["drafted"] = row.drafted;
  o["accepted"] = row.accepted;
  o["accepted_at"] =
      boost::json::value_from(std::vector<uint64_t>(row.accepted_at.begin(), row.accepted_at.end()));
  o["acceptance"] = row.acceptance();
  o["tokens_per_draft"] = row.tokens_per_draft();
  o["differing"] = row.differing;
  boost::json::object without;
  for (size_t reason = 0; reason < kNoDrafts; ++reason)
    without[no_draft_name(static_cast<NoDraft>(reason))] = row.without[reason];
  o["without"] = std::move(without);
  return o;
}

constexpr const char* kColours[] = {"#1b6ca8", "#c8553d", "#2f7d4f", "#7a4fa3", "#b8860b", "#555555"};

// All workloads of a drafter with this k at the smallest batch, as one row.
std::map<std::string, std::vector<SpeculationRow>> by_drafter(const std::vector<SpeculationRow>& rows) {
  uint32_t batch = UINT32_MAX;
  for (const SpeculationRow& row : rows) batch = std::min(batch, row.batch);
  std::map<std::string, std::map<uint32_t, SpeculationRow>> sums;
  for (const SpeculationRow& row : rows) {
    if (row.batch != batch || row.variant.k.value_or(0) == 0) continue;
    SpeculationRow& sum = sums[row.variant.drafter]
                              .try_emplace(*row.variant.k, SpeculationRow{.variant = row.variant})
                              .first->second;
    sum.drafts += row.drafts;
    sum.whole += row.whole;
    sum.drafted += row.drafted;
    sum.accepted += row.accepted;
  }
  std::map<std::string, std::vector<SpeculationRow>> out;
  for (auto& [drafter, by_k] : sums) {
    for (auto& [k, row] : by_k) out[drafter].push_back(std::move(row));
  }
  return out;
}

Chart tokens_chart(const std::vector<SpeculationRow>& rows) {
  Chart chart{.title = "Tokens per verification", .x_title = "guesses per step (k)", .y_title = "tokens"};
  size_t colour = 0;
  for (const auto& [drafter, list] : by_drafter(rows)) {
    const char* c = kColours[colour++ % std::size(kColours)];
    ChartSeries measured{
        .name = drafter + ", measured", .colour = c, .line = false, .mark = ChartSeries::Mark::kDisc};
    ChartSeries with{.name = drafter + ", (1-a^(k+1))/(1-a)", .colour = c};
    ChartSeries without{.name = drafter + ", (1-a^k)/(1-a), no bonus", .colour = c, .dashed = true};
    for (const SpeculationRow& row : list) {
      const double k = *row.variant.k;
      measured.points.emplace_back(k, row.tokens_per_draft());
      with.points.emplace_back(k, expected_tokens_per_step(row.acceptance(), drafted_per_draft(row)));
      without.points.emplace_back(k, expected_tokens_per_step(row.acceptance(), drafted_per_draft(row) - 1));
    }
    for (ChartSeries* s : {&measured, &with, &without}) chart.series.push_back(std::move(*s));
  }
  return chart;
}

Chart gain_chart(const std::vector<SpeculationRow>& rows) {
  Chart chart{.title = "Speed over no speculation",
              .x_title = "sequences at once",
              .y_title = "ratio",
              .log_x = true};
  std::map<std::string, ChartSeries> by_workload;
  size_t colour = 0;
  for (const SpeculationRow& row : rows) {
    if (row.variant.k || row.variant.drafter == "off") continue;
    auto [it, fresh] = by_workload.try_emplace(row.workload + ", " + row.variant.name());
    if (fresh)
      it->second = {.name = it->first,
                    .colour = kColours[colour++ % std::size(kColours)],
                    .mark = ChartSeries::Mark::kDisc};
    it->second.points.emplace_back(row.batch, row.gain);
  }
  for (auto& [name, series] : by_workload) chart.series.push_back(std::move(series));
  return chart;
}

}  // namespace

std::string speculation_md_head(const SpeculationSetting& s) {
  return fmt::format(
      "{}: answers of up to {} tokens at temperature {:g}, {} threads, medians of {} rounds in turns\n\n"
      "| workload  | batch | drafter      | tokens/s | over off | no guesses     | guesses right "
      "| by place, % | tokens per draft: measured | a, with bonus | without |\n"
      "|-----------|------:|--------------|---------:|---------:|----------------|--------------:"
      "|-------------|---------------------------:|--------------:|--------:|\n",
      s.model, s.tokens, s.temperature, s.threads, s.rounds);
}

std::string speculation_md_rows(const std::vector<SpeculationRow>& rows) {
  std::string text;
  for (const SpeculationRow& row : rows) {
    text += fmt::format("| {:<9} | {:>5} | {:<12} | {:>8.1f} | {:>7.3f}x | {:<14} |", row.workload, row.batch,
                        row.variant.name(), row.median, row.gain, without_guesses(row));
    if (row.drafts == 0) {
      text += fmt::format(" {:>13} | {:<11} | {:>26} | {:>13} | {:>7} |\n", "-", "", "", "", "");
      continue;
    }
    const double k = drafted_per_draft(row);
    text += fmt::format(" {:>13} | {:<11} | {:>26.2f} | {:>13.2f} | {:>7.2f} |\n",
                        fmt::format("{} of {}", row.accepted, row.drafted), by_place(row),
                        row.tokens_per_draft(), expected_tokens_per_step(row.acceptance(), k),
                        expected_tokens_per_step(row.acceptance(), k - 1));
  }
  return text;
}

std::string speculation_md_foot(const std::vector<SpeculationRow>& rows) {
  const uint64_t differing =
      std::accumulate(rows.begin(), rows.end(), uint64_t{0},
                      [](uint64_t n, const SpeculationRow& r) { return n + r.differing; });
  return fmt::format(
      "\nAnswers that differ from those without speculation: {}.\n"
      "\"k=N\" verifies N guesses whenever there are so many, \"k=0\" none of those made; \"auto\" as many\n"
      "as the predicted cost of the step makes pay. \"no guesses\": the part of the steps that verified "
      "none,\n"
      "and why most of these did not (docs/speculation.md).\n"
      "Tokens per draft count the token chosen after the last right guess (the bonus): (1-a^(k+1))/(1-a) for "
      "a "
      "chance a per guess\nand k guesses per draft; without it (1-a^k)/(1-a). For a = 0.8, k = 5: {:.2f} and "
      "{:.2f}.\n",
      differing, expected_tokens_per_step(0.8, 5), expected_tokens_per_step(0.8, 4));
}

std::string speculation_csv(const std::vector<SpeculationRow>& rows) {
  std::string text =
      "workload,batch,drafter,k,tokens_per_second,gain,drafts,drafted,accepted,acceptance,tokens_per_draft,"
      "differing\n";
  for (const SpeculationRow& r : rows)
    text += fmt::format("{},{},{},{},{:.2f},{:.4f},{},{},{},{:.4f},{:.4f},{}\n", r.workload, r.batch,
                        r.variant.drafter, r.variant.k ? std::to_string(*r.variant.k) : "", r.median, r.gain,
                        r.drafts, r.drafted, r.accepted, r.acceptance(), r.tokens_per_draft(), r.differing);
  return text;
}

std::string speculation_json(const SpeculationSetting& setting, const std::vector<SpeculationRow>& rows) {
  boost::json::object all;
  all["model"] = setting.model;
  all["threads"] = setting.threads;
  all["tokens"] = setting.tokens;
  all["rounds"] = setting.rounds;
  all["temperature"] = setting.temperature;
  boost::json::array list;
  for (const SpeculationRow& row : rows) list.push_back(json_of(row));
  all["rows"] = std::move(list);
  return boost::json::serialize(all) + "\n";
}

std::string speculation_svg(const SpeculationSetting& setting, const std::vector<SpeculationRow>& rows) {
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1100\" height=\"560\" font-family=\"sans-serif\" "
      "font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  svg += fmt::format("<text x=\"20\" y=\"28\" font-size=\"16\">Speculation with {}</text>\n",
                     xml_text(setting.model));
  svg += svg_chart(tokens_chart(rows), {10, 45, 530, 500});
  svg += svg_chart(gain_chart(rows), {560, 45, 530, 500});
  return svg + "</svg>\n";
}

}  // namespace kvasir
