#include "perf/hardware_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvasir {
namespace {

using testing::HasSubstr;

HardwareProfile sample() {
  HardwareProfile p;
  p.cpu = "Some \"CPU\" @ 3.1 GHz";
  p.isa = Isa::kAvx2;
  p.measured_at = "2026-11-29T21:30:00Z";
  p.threads = 3;
  p.cores = 2;
  p.clock_hz = 3.123456789e9;
  p.int8_macs = {3.27e11, 6.5e11};
  p.f32_macs = {8.8e10, 1.0 / 3 * 1e11};
  p.reads = {{1 << 15, {2e11, 4e11}}, {1 << 20, {1e11, 2e11}}, {1 << 24, {3e10, 6e10}}};
  p.barrier_seconds = 1.5e-7;
  p.others = 0.25;
  p.steal = 0.0125;
  return p;
}

// The sample's JSON with one piece of text put in another's place.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = sample().to_json();
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string refusal(const std::string& text) {
  const auto p = HardwareProfile::from_json(text);
  EXPECT_FALSE(p.ok()) << text;
  if (p.ok()) return "";
  EXPECT_EQ(p.status().code(), ErrorCode::kInvalidArgument);
  return p.message();
}

TEST(HardwareProfile, ReadsBackWhatItWrote) {
  const HardwareProfile p = sample();
  const auto read = HardwareProfile::from_json(p.to_json());
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_EQ(read->cpu, p.cpu);
  EXPECT_EQ(read->isa, p.isa);
  EXPECT_EQ(read->measured_at, p.measured_at);
  EXPECT_EQ(read->threads, p.threads);
  EXPECT_EQ(read->cores, p.cores);
  EXPECT_EQ(read->clock_hz, p.clock_hz);
  EXPECT_EQ(read->f32_macs.all_threads, p.f32_macs.all_threads);
  EXPECT_EQ(read->int8_macs.one_thread, p.int8_macs.one_thread);
  EXPECT_EQ(read->barrier_seconds, p.barrier_seconds);
  EXPECT_EQ(read->others, p.others);
  EXPECT_EQ(read->steal, p.steal);
  EXPECT_TRUE(read->disturbed());
  ASSERT_EQ(read->reads.size(), p.reads.size());
  for (size_t i = 0; i < p.reads.size(); ++i) {
    EXPECT_EQ(read->reads[i].bytes, p.reads[i].bytes);
    EXPECT_EQ(read->reads[i].rate.one_thread, p.reads[i].rate.one_thread);
    EXPECT_EQ(read->reads[i].rate.all_threads, p.reads[i].rate.all_threads);
  }
  EXPECT_EQ(read->to_json(), p.to_json());
}

TEST(HardwareProfile, RefusalsNameTheKeyAndTheFault) {
  EXPECT_THAT(refusal(""), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("{} rest"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("'version' is missing"));
  EXPECT_THAT(refusal(changed("\"version\": 3", "\"version\": 2")),
              HasSubstr("'version' is 2; this program reads version 3: measure again"));
  EXPECT_THAT(refusal(changed("\"clock_hz\"", "\"clock\"")), HasSubstr("'clock_hz' is missing"));
  EXPECT_THAT(refusal(changed("\"threads\": 3", "\"threads\": 0")), HasSubstr("'threads' is 0"));
  EXPECT_THAT(refusal(changed("\"threads\": 3", "\"threads\": 2.5")), HasSubstr("whole number"));
  EXPECT_THAT(refusal(changed("\"threads\": 3", "\"threads\": \"3\"")), HasSubstr("not a number"));
  EXPECT_THAT(refusal(changed("\"avx2\"", "\"z80\"")),
              HasSubstr("'isa' is an unknown instruction set 'z80'"));
  EXPECT_THAT(refusal(changed("\"avx2\"", "7")), HasSubstr("'isa' is not a string"));
  EXPECT_THAT(refusal(changed("\"one_thread\": 327000000000", "\"one_thread\": 0")),
              HasSubstr("'int8_macs_per_second.one_thread' is 0"));
  EXPECT_THAT(refusal(changed("0.0125", "1.5")), HasSubstr("'steal' is 1.5"));
  EXPECT_THAT(refusal(changed("\"working_set\": 1048576", "\"working_set\": 4096")),
              HasSubstr("'read_bytes_per_second[1].working_set' is not larger"));
}

TEST(HardwareProfile, NoReadsAreRefused) {
  std::string text = sample().to_json();
  const size_t open = text.find('[');
  text.replace(open, text.find(']') - open, "[");
  EXPECT_THAT(refusal(text), HasSubstr("has 0 entries"));
}

// Of 4 MiB, between 1 MiB at 5 ps a byte and 16 MiB at 16.7 ps, a quarter is held where 1 MiB is: all but
// (1/4 - 1/16) / (1 - 1/16) of it takes the longer time.
TEST(HardwareProfile, CachesHoldTheirPartOfALargerSet) {
  const HardwareProfile p = sample();
  EXPECT_DOUBLE_EQ(p.read_rate(1, 1), 2e11);
  EXPECT_DOUBLE_EQ(p.read_rate(1 << 20, 1), 1e11);
  EXPECT_DOUBLE_EQ(p.read_rate(1 << 20, 3), 2e11);
  EXPECT_DOUBLE_EQ(p.read_rate(1 << 22, 3), 1 / (0.2 / 2e11 + 0.8 / 6e10));
  EXPECT_DOUBLE_EQ(p.read_rate(uint64_t{1} << 40, 3), 6e10);
}

TEST(HardwareProfile, RatesBetweenOneThreadAndAll) {
  HardwareProfile p = sample();
  EXPECT_DOUBLE_EQ(p.int8_rate(1), 3.27e11);
  EXPECT_DOUBLE_EQ(p.int8_rate(2), (3.27e11 + 6.5e11) / 2);
  EXPECT_DOUBLE_EQ(p.int8_rate(3), 6.5e11);
  EXPECT_DOUBLE_EQ(p.int8_rate(64), 6.5e11);
  EXPECT_TRUE(p.shares_cores());  // 2.0 of 3
  p.threads = 2;
  EXPECT_FALSE(p.shares_cores());
  p.threads = 1;
  EXPECT_DOUBLE_EQ(p.f32_rate(4), p.f32_macs.one_thread);
}

}  // namespace
}  // namespace kvasir
