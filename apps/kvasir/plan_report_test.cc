#include "apps/kvasir/plan_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/json.hpp>

#include <algorithm>

#include "apps/kvasir/plan_page.h"
#include "apps/kvasir/test_file.h"
#include "models/tiny_model.h"

namespace kvasir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

PlanReport report(PlanFlags flags) {
  if (flags.model.empty()) flags.model = "Llama 3.1 8B";
  if (flags.machine == "here") flags.machine = "EPYC 9654";
  auto request = plan_request(flags, *plan_model(flags.model), *machine_by_name(flags.machine));
  EXPECT_TRUE(request.ok()) << request.message();
  auto made = make_plan_report(*std::move(request));
  EXPECT_TRUE(made.ok()) << made.message();
  return *std::move(made);
}

TEST(PlanRequest, TakesTheModelsContextUpToADefault) {
  EXPECT_EQ(report({}).request.input.context, 4096u);
  EXPECT_EQ(report({}).request.input.prompt, 4096u);
  EXPECT_EQ(report({.context = 100000, .prompt = 50}).request.input.prompt, 50u);
  const auto far = plan_request({.context = 200000}, *plan_model("Llama 3.1 8B"), *machine_by_name("M1"));
  EXPECT_THAT(far.message(), HasSubstr("the context is 200000 and Llama 3.1 8B was made for at most 131072"));
}

TEST(PlanRequest, NamesTheFlagThatIsWrong) {
  const PlanModel model = *plan_model("Llama 3.1 8B");
  const MachineSpec machine = *machine_by_name("M1");
  EXPECT_THAT(plan_request({.weights = "Q9"}, model, machine).message(), HasSubstr("--weights: "));
  EXPECT_THAT(plan_request({.kv_cache_dtype = "int3"}, model, machine).message(),
              HasSubstr("--kv-cache-dtype: "));
  EXPECT_THAT(plan_request({.memory = "much"}, model, machine).message(), HasSubstr("--memory: "));
  EXPECT_THAT(plan_request({.threads = 2}, model, machine).message(),
              HasSubstr("--threads needs a measured machine"));
  const Result<MachineSpec> unknown = plan_machine({.machine = "EPYC 9655"});
  EXPECT_THAT(unknown.message(), HasSubstr("--machine: "));
  EXPECT_THAT(unknown.message(), HasSubstr("EPYC 965"));
}

// A machine whose kernels were measured: as fast as its peaks' rates come to.
MachineSpec measured_machine() {
  HardwareProfile p;
  p.cpu = "measured one";
  p.clock_hz = 3e9;
  p.threads = 2;
  p.int8_macs = {1e11, 2e11};
  p.f32_macs = {1e10, 2e10};
  p.reads = {{uint64_t{1} << 15, {1e11, 2e11}}, {uint64_t{1} << 28, {1e10, 1.5e10}}};
  p.barrier_seconds = 1e-7;
  p.kernels = derived_rates(p, std::vector<DType>{DType::kF32, DType::kQ8_0});
  return machine_from_profile(p, uint64_t{1} << 30, "profile.json");
}

// A plan of a file that the engine runs.
PlanReport predicted_report(PlanFlags flags, const MachineSpec& machine = measured_machine()) {
  const TestFile file(TinyModel{}.bytes());
  flags.model = file.path();
  auto request = plan_request(flags, *plan_model(file.path()), machine);
  EXPECT_TRUE(request.ok()) << request.message();
  auto made = make_plan_report(*std::move(request));
  EXPECT_TRUE(made.ok()) << made.message();
  return *std::move(made);
}

void expect_numbers_are_quantities(const PlanReport& r, size_t least) {
  const auto tables = plan_tables(r);
  ASSERT_EQ(tables.size(), 7u);
  size_t numbers = 0;
  for (const PlanTable& table : tables) {
    for (const auto& row : table.rows) {
      EXPECT_EQ(row.size(), table.columns.size()) << table.title;
      for (const PlanCell& cell : row) {
        if (cell.quantity.empty()) continue;
        EXPECT_NE(r.derivation.find(cell.quantity), nullptr) << cell.quantity;
        ++numbers;
      }
    }
  }
  EXPECT_GT(numbers, least);
}

TEST(PlanReport, EveryNumberOfATableIsAQuantity) {
  const PlanFlags flags{.shared_prefix = 500, .users = 4, .ttft_ms = 500, .tpot_ms = 50};
  expect_numbers_are_quantities(report(flags), 60);
  expect_numbers_are_quantities(
      predicted_report({.context = 32, .shared_prefix = 3, .users = 4, .ttft_ms = 1, .tpot_ms = 1}), 60);
}

TEST(PlanReport, PredictsAFileOnAMeasuredMachine) {
  const PlanReport r = predicted_report({.context = 32, .users = 4, .tpot_ms = 100});
  ASSERT_NE(r.request.input.predictor, nullptr);
  EXPECT_EQ(r.request.no_prediction, "");
  EXPECT_TRUE(r.outcome.predicted);
  EXPECT_EQ(r.outcome.tpot, r.derivation.value("predicted_batch_4_tpot"));
  const std::string text = plan_text(r, 100, false);
  for (const char* part :
       {"times: predicted from what the kernels reach", "Speed, predicted from the kernels", " floor | ",
        " | reached | floor bound by ", " predicted; ", " at least, bound by "})
    EXPECT_THAT(text, HasSubstr(part));
  const boost::json::object json = boost::json::parse(plan_json(r)).as_object();
  EXPECT_EQ(json.at("times"), "predicted");
  const boost::json::object& point = json.at("points").at(0).as_object();
  EXPECT_NEAR(point.at("reached").as_double(),
              point.at("floor_tpot_seconds").as_double() / point.at("tpot_seconds").as_double(), 1e-12);
  EXPECT_EQ(latency_chart(r).series[0].name, "predicted");
  EXPECT_EQ(throughput_chart(r).series.back().points.size(), r.batches.size());
}

TEST(PlanReport, SaysWhyNothingIsPredicted) {
  EXPECT_THAT(plan_text(report({}), 100, false), HasSubstr("floors of the machine, not predictions: only a"));
  EXPECT_THAT(predicted_report({.context = 32}, *machine_by_name("M1")).request.no_prediction,
              HasSubstr("nobody measured the kernels on Apple M1"));
  EXPECT_THAT(predicted_report({.weights = "Q8_0", .context = 32}).request.no_prediction,
              HasSubstr("other weights than Q8_0"));
  EXPECT_THAT(predicted_report({.kv_cache_dtype = "fp8", .context = 32}).request.no_prediction,
              HasSubstr("no KV cache as fp8"));
  MachineSpec peaks = measured_machine();
  peaks.profile->kernels.reset();
  const PlanReport r = predicted_report({.context = 32}, peaks);
  EXPECT_THAT(r.request.no_prediction, HasSubstr("`kvasir bench machine`"));
  const boost::json::object json = boost::json::parse(plan_json(r)).as_object();
  EXPECT_EQ(json.at("times"), "floor");
  EXPECT_TRUE(json.at("no_prediction").is_string());
}

// Fewer threads are predicted from the rates of all of them.
TEST(PlanReport, PredictsFewerThreads) {
  const PlanReport two = predicted_report({.context = 32}),
                   one = predicted_report({.context = 32, .threads = 1});
  EXPECT_GT(one.outcome.ttft, two.outcome.ttft);
  const PlanInput& in = one.request.input;
  EXPECT_EQ(one.outcome.ttft,
            two.request.input.predictor->with_threads(1)->predict(prefill_step(in)).seconds);
  EXPECT_TRUE(std::any_of(one.advice.begin(), one.advice.end(), [&](const PlanAdvice& a) {
    return a.id == "threads" && a.after.predicted && a.after.ttft == two.outcome.ttft;
  }));
}

TEST(PlanReport, TextHasEveryPart) {
  const std::string text = plan_text(report({.users = 4, .tpot_ms = 50}), 100, false);
  for (const char* part : {"### What it takes", "8.03 B", "### By format", "### Speed", "#####",
                           "### What was asked", "### What would help",
                           "kvasir serve MODEL.gguf --max-model-len 4096 --max-num-seqs 4 "
                           "--kv-memory 2048M"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(text, Not(HasSubstr("█")));
  EXPECT_THAT(plan_text(report({}), 60, true), HasSubstr("█"));
  EXPECT_THAT(plan_text(report({}), 60, true), Not(HasSubstr("What was asked")));
}

// A terminal gets tables in parts, and sentences in lines, that fit; a file gets them whole.
TEST(PlanReport, FoldsToTheTerminal) {
  const PlanReport r = predicted_report({.context = 32, .users = 4, .tpot_ms = 100});
  for (const size_t columns : {80u, 200u}) {
    const std::string text = plan_text(r, columns, true);
    size_t tables = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      const std::string line = text.substr(at, end - at);
      at = end + 1;
      tables += line.starts_with("| at once |");
      if (line.find(' ') != std::string::npos && !line.starts_with("  kvasir serve") &&
          std::all_of(line.begin(), line.end(), [](char c) { return c >= 0; })) {
        EXPECT_LE(line.size(), columns) << line;
      }
    }
    EXPECT_EQ(tables > 1, columns < 200) << columns;
    EXPECT_EQ(text.find("  \n"), std::string::npos);
  }
  const std::string whole = plan_text(r, 80, false);
  EXPECT_EQ(whole.find("| at once |"), whole.rfind("| at once |"));
}

TEST(PlanReport, SaysWhatSpeculationWouldGive) {
  const PlanReport r = report({.users = 4, .acceptance = 0.5});
  const auto tables = plan_tables(r);
  const auto table = std::find_if(tables.begin(), tables.end(),
                                  [](const PlanTable& t) { return t.title.starts_with("Speculation at 4"); });
  ASSERT_NE(table, tables.end());
  EXPECT_EQ(table->rows.size(), r.speculation.rows.size());
  EXPECT_EQ(table->columns.size(), 3 + r.speculation.acceptances.size());
  EXPECT_EQ(table->rows[0][1].quantity, "speculation_1_verify");
  EXPECT_THAT(table->note, HasSubstr("At 4 at once and a chance of 0.5"));
}

TEST(PlanReport, AnswersWhatWasAsked) {
  const PlanReport r = report({.users = 4, .ttft_ms = 1, .tpot_ms = 1e6});
  EXPECT_FALSE(r.outcome.ttft_met);
  EXPECT_TRUE(r.outcome.tpot_met);
  EXPECT_EQ(r.objective, PlanObjective::kTtft);
  const std::string text = plan_text(r, 100, false);
  EXPECT_THAT(text, HasSubstr("no prompt is short enough"));
  EXPECT_THAT(text, HasSubstr("by gain in time to first token"));
}

TEST(PlanReport, ServesOnlyWhatTheEngineRuns) {
  EXPECT_TRUE(report({}).serves);
  EXPECT_TRUE(report({.model = "Mistral 7B"}).serves);
  EXPECT_TRUE(report({.model = "Gemma 3 1B"}).serves);
  EXPECT_TRUE(report({.model = "Mixtral 8x7B"}).serves);
  EXPECT_TRUE(report({.model = "DeepSeek-V2-Lite"}).serves);
  PlanModel other = *plan_model("Llama 3.1 8B");
  other.shape.architecture = "mamba2";
  auto request = plan_request({}, other, *machine_by_name("EPYC 9654"));
  ASSERT_TRUE(request.ok()) << request.message();
  const auto made = make_plan_report(*std::move(request));
  ASSERT_TRUE(made.ok()) << made.message();
  EXPECT_FALSE(made->serves);
  EXPECT_THAT(made->serve, HasSubstr("does not run the architecture mamba2"));
  const PlanReport gpu = report({.machine = "H100"});
  EXPECT_FALSE(gpu.serves);
  EXPECT_THAT(gpu.serve, HasSubstr("H100 SXM is a GPU"));
  const PlanReport bytes = report({.kv_cache_dtype = "fp8", .users = 4});
  EXPECT_FALSE(bytes.serves);
  EXPECT_THAT(bytes.serve, HasSubstr("keeps no KV cache as fp8"));
  EXPECT_TRUE(report({.machine = "Apple M3", .weights = "Q4_K_M", .kv_cache_dtype = "auto"}).serves);
}

TEST(PlanReport, ServesTheFileOrOneOfOtherWeights) {
  const PlanReport same = predicted_report({.context = 32}),
                   other = predicted_report({.weights = "Q8_0", .context = 32});
  EXPECT_THAT(same.serve, HasSubstr(same.request.model));
  EXPECT_THAT(other.serve, testing::StartsWith("kvasir serve MODEL.gguf "));
}

TEST(PlanReport, SaysWhenNothingFits) {
  const PlanReport r = report({.model = "Llama 3.1 70B", .machine = "RTX 4090"});
  EXPECT_FALSE(r.serves);
  EXPECT_THAT(r.serve, HasSubstr("weights and one conversation need 132"));
  EXPECT_EQ(r.objective, PlanObjective::kMemory);
  EXPECT_FALSE(r.advice.empty());
  EXPECT_EQ(r.batches.back(), 1u);
  EXPECT_THAT(plan_text(r, 100, false), HasSubstr("Not even one conversation fits"));
}

TEST(PlanReport, JsonHasTheSameNumbers) {
  const PlanReport r = report({.users = 4, .tpot_ms = 50});
  const boost::json::object json = boost::json::parse(plan_json(r)).as_object();
  EXPECT_EQ(json.at("model"), "Llama 3.1 8B");
  EXPECT_EQ(json.at("context"), 4096);
  EXPECT_EQ(json.at("goals").at("users"), 4);
  EXPECT_EQ(json.at("outcome").at("tpot_seconds").as_double(), r.outcome.tpot);
  EXPECT_EQ(json.at("points").as_array().size(), r.batches.size());
  EXPECT_EQ(json.at("advice").as_array().size(), r.advice.size());
  EXPECT_EQ(json.at("quantities").as_array().size(), r.derivation.quantities().size());
  EXPECT_EQ(json.at("quantities").at(0).at("id"), "parameters");
  EXPECT_TRUE(json.at("serve").is_string());
}

TEST(PlanReport, ListsAndExplainsItsQuantities) {
  const PlanReport r = report({});
  EXPECT_THAT(plan_quantities(r), HasSubstr("ttft "));
  const std::string text = *r.derivation.explain("ttft", true);
  EXPECT_THAT(text, HasSubstr("time to first token = a + b + c + d"));
  EXPECT_THAT(text, HasSubstr("weights of the output head = V * D"));
  EXPECT_THAT(text, HasSubstr("source: "));
}

TEST(PlanReport, Durations) {
  EXPECT_EQ(duration_text(4.2e-5), "42.0 us");
  EXPECT_EQ(duration_text(0.0123), "12.3 ms");
  EXPECT_EQ(duration_text(0.99999), "1.00 s");
  EXPECT_EQ(duration_text(125), "2 min 5 s");
  EXPECT_EQ(duration_text(7260), "2 h 1 min");
}

TEST(PlanPage, StandsAlone) {
  const PlanReport r = report({.users = 4, .tpot_ms = 50});
  const std::string page = plan_page(r);
  EXPECT_THAT(page, HasSubstr("<svg"));
  EXPECT_THAT(page, HasSubstr("attention projections, prefill"));
  EXPECT_THAT(page, HasSubstr("feed-forward, decode of 4"));
  EXPECT_THAT(page, HasSubstr("title=\"weights"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("<link")));
}

TEST(PlanCharts, ShowEveryKindOnceAndBelowItsRoof) {
  const PlanReport r = report({.users = 4});
  const Chart chart = roofline_chart(r);
  size_t marks = 0;
  for (const ChartSeries& series : chart.series) {
    if (series.line) continue;
    ASSERT_EQ(series.points.size(), 1u);
    EXPECT_LE(series.points[0].second, chart.series[0].points.back().second * 1.0001);
    ++marks;
  }
  EXPECT_EQ(marks, 8u);  // four kinds, prefill and decode
  EXPECT_EQ(throughput_chart(r).series[0].points.size(), r.batches.size());
  EXPECT_EQ(memory_chart(r).series.size(), 3u);  // 1, 4 and what there is
}

TEST(SvgChart, TicksAreRound) {
  EXPECT_THAT(axis_ticks(0, 10, false), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(axis_ticks(1, 64, true), ElementsAre(1, 2, 5, 10, 20, 50));
  EXPECT_THAT(axis_ticks(1, 1e4, true), ElementsAre(1, 10, 100, 1000, 1e4));
  EXPECT_EQ(tick_text(0), "0");
  EXPECT_EQ(tick_text(1500), "1.5k");
  EXPECT_EQ(tick_text(2e6), "2M");
  EXPECT_EQ(xml_text("a<b & \"c\""), "a&lt;b &amp; &quot;c&quot;");
  EXPECT_THAT(svg_chart({.title = "none"}, {}), HasSubstr("nothing to show"));
}

}  // namespace
}  // namespace kvasir
