#include "apps/kvasir/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace kvasir {
namespace {

using testing::HasSubstr;
namespace json = boost::json;

HardwareProfile machine() {
  HardwareProfile m;
  m.cpu = "Some CPU";
  m.threads = 2;
  m.clock_hz = 3e9;
  m.int8_macs = {2e11, 4e11};
  m.f32_macs = {1e11, 2e11};
  m.reads = {{1 << 20, {2e10, 4e10}}};
  return m;
}

// 100 tokens in one second, in 100 steps that read 20 GB and multiply 100 G together.
BenchResult result() {
  BenchResult r;
  r.shape = {.prompt = 0, .generate = 100};
  r.tokens_per_second = {90, 100, 110};
  r.median = 100;
  r.spread = 0.2;
  r.cost = {.weight_bytes = 19'000'000'000, .kv_read_bytes = 1'000'000'000, .linear_macs = 100'000'000'000};
  r.steps = 100;
  return r;
}

BenchSetting setting() {
  BenchSetting s{
      .model = "dir/\"m\".gguf", .model_name = "M", .parameters = 42, .threads = 2, .isa = Isa::kAvx2};
  s.machine = machine();
  s.machine_source = "m.json of today";
  s.before = MachineProbe{.clock_hz = 3.1e9, .int8_macs = 4e11, .read_rate = 3.5e10, .read_bytes = 256 << 20};
  s.after =
      MachineProbe{.clock_hz = 2.9e9, .int8_macs = 3.8e11, .read_rate = 3.4e10, .read_bytes = 256 << 20};
  s.meanwhile = {.others = 0.5, .stolen = 0.25};
  return s;
}

TEST(BenchRow, RatesAndPartsOfTheMachine) {
  const HardwareProfile m = machine();
  const BenchRow row = bench_row(result(), &m, 2);
  EXPECT_EQ(row.test, "tg100");
  EXPECT_DOUBLE_EQ(row.gb_per_second, 20);
  EXPECT_DOUBLE_EQ(row.gmac_per_second, 100);
  ASSERT_TRUE(row.parts);
  EXPECT_DOUBLE_EQ(row.parts->read, 0.5);
  EXPECT_DOUBLE_EQ(row.parts->compute, 0.25);
  EXPECT_TRUE(row.parts->memory_bound());
  EXPECT_FALSE(bench_row(result(), nullptr, 2).parts);
}

TEST(BenchReport, Markdown) {
  const HardwareProfile m = machine();
  EXPECT_EQ(md_row(bench_row(result(), &m, 2)),
            "| tg100            |     100.00 |  20.0 % |   20.00 |    100.0 |     50 % |       25 % | memory "
            "  |\n");
  EXPECT_EQ(md_row(bench_row(result(), nullptr, 2)),
            "| tg100            |     100.00 |  20.0 % |   20.00 |    100.0 |          |            |        "
            "  |\n");
  const std::string head = md_head(setting());
  EXPECT_THAT(head, HasSubstr("M, 2 threads, avx2\n"));
  const size_t titles = head.find('|'), rule = head.find("\n|", titles) + 1;
  EXPECT_EQ(rule - titles, head.size() - rule);  // equally wide
  const std::string foot = md_foot(setting());
  EXPECT_THAT(foot, HasSubstr("Some CPU, 2 threads: clock 3.00 GHz, int8 400 GMAC/s, f32 400 GFLOP/s"));
  EXPECT_THAT(foot,
              HasSubstr("clock 3.10, 2.90 GHz; int8 400, 380 GMAC/s; reads of 256 MiB 35.0, 34.0 GB/s"));
  EXPECT_THAT(foot, HasSubstr("others used 50.0 % of the CPUs, and 25.0 % were stolen"));
  EXPECT_EQ(md_foot({}), "");
}

TEST(BenchReport, CsvHasOneCellPerTitle) {
  const HardwareProfile m = machine();
  const auto commas = [](const std::string& s) { return std::count(s.begin(), s.end(), ','); };
  EXPECT_EQ(csv_row(bench_row(result(), &m, 2)),
            "tg100,100.000,0.2000,20.000,100.000,0.5000,0.2500,memory\n");
  EXPECT_EQ(csv_row(bench_row(result(), nullptr, 2)), "tg100,100.000,0.2000,20.000,100.000,,,\n");
  EXPECT_EQ(commas(csv_head()), commas(csv_row(bench_row(result(), nullptr, 2))));
}

// bench/peers/engines.py reads `test` and `tokens_per_second`.
TEST(BenchReport, JsonIsOneObjectPerTest) {
  const HardwareProfile m = machine();
  const json::value rows = json::parse(rows_json(setting(), {bench_row(result(), &m, 2)}));
  ASSERT_EQ(rows.as_array().size(), 1u);
  const json::object& row = rows.as_array()[0].as_object();
  EXPECT_EQ(row.at("test"), "tg100");
  EXPECT_EQ(row.at("model"), "dir/\"m\".gguf");
  EXPECT_EQ(row.at("isa"), "avx2");
  EXPECT_EQ(row.at("threads").to_number<int>(), 2);
  EXPECT_EQ(row.at("tokens_per_second").to_number<double>(), 100);
  EXPECT_EQ(row.at("samples").as_array().size(), 3u);
  EXPECT_EQ(row.at("read_part").to_number<double>(), 0.5);
  EXPECT_EQ(row.at("bound"), "memory");
  EXPECT_EQ(row.at("machine_after").as_object().at("clock_hz").to_number<double>(), 2.9e9);
  EXPECT_EQ(row.at("others").to_number<double>(), 0.5);
}

TEST(BenchReport, JsonWithoutAMachineLeavesItOut) {
  const json::value rows = json::parse(rows_json({.model = "m"}, {bench_row(result(), nullptr, 2)}));
  const json::object& row = rows.as_array()[0].as_object();
  for (const char* key : {"read_part", "compute_part", "bound", "machine_before", "machine_source"})
    EXPECT_FALSE(row.contains(key)) << key;
  EXPECT_EQ(json::parse(rows_json({}, {})).as_array().size(), 0u);
}

TEST(TimedSteps, PromptsInChunksAndTokensOneByOne) {
  const auto prompt = timed_steps({.prompt = 300, .generate = 0, .batch = 4, .depth = 50}, 512);
  ASSERT_EQ(prompt.size(), 3u);  // of 128 tokens per sequence
  EXPECT_EQ(prompt[0].first, 50u);
  EXPECT_EQ(prompt[0].rows, 128u);
  EXPECT_FALSE(prompt[0].logits);
  EXPECT_EQ(prompt[2].first, 306u);
  EXPECT_EQ(prompt[2].rows, 44u);
  EXPECT_TRUE(prompt[2].logits);
  const auto generate = timed_steps({.prompt = 0, .generate = 3, .batch = 2, .depth = 7}, 512);
  ASSERT_EQ(generate.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(generate[i].first, 7 + i);
    EXPECT_EQ(generate[i].rows, 1u);
    EXPECT_TRUE(generate[i].logits);
  }
}

}  // namespace
}  // namespace kvasir
