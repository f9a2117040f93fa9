#include "perf/machine_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace kvasir {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

HardwareProfile profile() {
  HardwareProfile p;
  p.cpu = "Some CPU";
  p.measured_at = "2026-11-29T21:30:00Z";
  p.threads = 2;
  p.cores = 2;
  p.clock_hz = 3e9;
  p.int8_macs = {3e11, 6e11};
  p.f32_macs = {1e11, 2e11};
  p.reads = {{1 << 20, {1e11, 2e11}}, {1 << 24, {2e10, 3e10}}};
  return p;
}

TEST(MachineTable, EveryRowIsComplete) {
  for (const std::string& name : known_machine_names()) {
    const auto m = machine_by_name(name);
    ASSERT_TRUE(m.ok()) << m.message();
    EXPECT_THAT(m->source, StartsWith("https://")) << name;
    EXPECT_FALSE(m->note.empty()) << name;
    EXPECT_GT(m->memory_bytes, uint64_t{8} << 30) << name;
    EXPECT_GT(m->bandwidth, 5e10) << name;
    EXPECT_LT(m->bandwidth, 1e13) << name;
    EXPECT_GT(m->peaks.f32_macs, 1e11) << name;
    EXPECT_GE(m->macs(16), m->peaks.f32_macs) << name;
    EXPECT_GE(m->macs(8), m->macs(16)) << name;
    EXPECT_GT(m->cores, 0u) << name;
    EXPECT_FALSE(machine_kind_name(m->kind).empty()) << name;
  }
}

TEST(MachineTable, NamesAreForgiving) {
  EXPECT_EQ(machine_by_name("h100")->bandwidth, 3.35e12);
  EXPECT_EQ(machine_by_name("xeon-8480")->cores, 56u);
  // 56 cores * 1024 int8 multiply-adds * 2.0 GHz
  EXPECT_EQ(machine_by_name("Sapphire Rapids")->peaks.int8_macs, 56 * 1024 * 2.0e9);
  EXPECT_THAT(machine_by_name("H1000").message(),
              HasSubstr("no machine is known as 'H1000'; did you mean H100 SXM"));
}

TEST(MachineSpec, TakesTheNextWiderPeak) {
  MachineSpec m;
  m.peaks = {1, 0, 0};
  EXPECT_EQ(m.macs(8), 1);
  m.peaks = {1, 2, 0};
  EXPECT_EQ(m.macs(8), 2);
  m.peaks = {1, 2, 4};
  EXPECT_EQ(m.macs(8), 4);
  EXPECT_EQ(m.macs(16), 2);
  EXPECT_EQ(m.macs(32), 1);
}

TEST(MachineSpec, OfAMeasuredMachine) {
  const MachineSpec m = machine_from_profile(profile(), 1000, "p.json");
  EXPECT_EQ(m.name, "Some CPU");
  EXPECT_EQ(m.memory_bytes, 1000u);
  EXPECT_EQ(m.bandwidth, 3e10);
  EXPECT_EQ(m.peaks.int8_macs, 6e11);
  EXPECT_EQ(m.macs(16), 2e11);
  EXPECT_EQ(m.read_rate(1 << 20), 2e11);
  EXPECT_EQ(m.read_rate(uint64_t{1} << 40), 3e10);
  EXPECT_EQ(machine_by_name("L4")->read_rate(1), 3e11);
}

TEST(ResolveMachine, TakesHereAPathAndAName) {
  const std::string path = testing::TempDir() + "/resolve_machine.json";
  std::ofstream(path) << profile().to_json();
  EXPECT_EQ(resolve_machine("here", {path, 77})->memory_bytes, 77u);
  EXPECT_EQ(resolve_machine(path, {})->name, "Some CPU");
  EXPECT_EQ(resolve_machine("4090", {})->memory_bytes, 24000000000u);
  EXPECT_THAT(resolve_machine("here", {path + ".no", 0}).message(), HasSubstr("`kvasir bench machine`"));
  EXPECT_THAT(resolve_machine("here", {}).message(), HasSubstr("`kvasir bench machine`"));
  EXPECT_THAT(resolve_machine(path + ".no.json", {}).message(), HasSubstr("no such file"));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace kvasir
