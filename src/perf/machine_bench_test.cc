#include "perf/machine_bench.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/dtype.h"
#include "kernels/peak.h"
#include "perf/machine_info.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

class MachineInfo : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(root_); }
  void TearDown() override { fs::remove_all(root_); }
  void core(int cpu, int package, int core) const {
    const fs::path folder = root_ / fmt_cpu(cpu);
    write(folder / "physical_package_id", std::to_string(package) + "\n");
    write(folder / "core_id", std::to_string(core) + "\n");
  }
  static std::string fmt_cpu(int cpu) {
    return "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology";
  }
  const fs::path root_ = fs::temp_directory_path() / ("kvasir_machine_" + std::to_string(getpid()));
};

TEST_F(MachineInfo, SiblingsAreOneCore) {
  for (int cpu = 0; cpu < 4; ++cpu) core(cpu, 0, cpu / 2);
  core(4, 1, 0);
  EXPECT_EQ(count_cores({0, 1, 2, 3}, root_), 2u);
  EXPECT_EQ(count_cores({0, 2}, root_), 2u);
  EXPECT_EQ(count_cores({0, 1, 4}, root_), 2u);
  EXPECT_EQ(count_cores({0, 7}, root_), 0u);  // /sys does not know CPU 7
}

TEST_F(MachineInfo, NameAndTicksAsLinuxWritesThem) {
  EXPECT_EQ(cpu_name(root_), "");
  EXPECT_EQ(read_cpu_times(root_).total, 0);
  write(root_ / "proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU\nmodel name\t: Other\n");
  write(root_ / "proc/stat", "cpu  10 20 30 40 5 6 7 8 100 200\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
  EXPECT_EQ(cpu_name(root_), "Some CPU");
  const double hertz = static_cast<double>(sysconf(_SC_CLK_TCK));
  const CpuTimes times = read_cpu_times(root_);
  EXPECT_DOUBLE_EQ(times.total * hertz, 126);
  EXPECT_DOUBLE_EQ(times.busy * hertz, 10 + 20 + 30 + 6 + 7);
  EXPECT_DOUBLE_EQ(times.stolen * hertz, 8);
  EXPECT_GT(times.own, 0);
}

TEST(CpuShares, OthersAreWhoIsBusyBesidesUs) {
  const CpuTimes before{.total = 100, .busy = 40, .stolen = 4, .own = 10};
  const CpuShares shares = shares_between(before, {.total = 140, .busy = 70, .stolen = 14, .own = 20});
  EXPECT_DOUBLE_EQ(shares.others, 0.5);
  EXPECT_DOUBLE_EQ(shares.stolen, 0.25);
  EXPECT_DOUBLE_EQ(shares_between(before, before).others, 0);
  // Ticks are coarser than the clock of a process.
  EXPECT_DOUBLE_EQ(shares_between(before, {.total = 101, .busy = 41, .stolen = 4, .own = 12}).others, 0);
}

TEST(Peaks, EveryTableIsWholeAndRuns) {
  alignas(64) static std::byte memory[kReadGrain] = {};
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512Vnni}) {
    if (!isa_supported(isa)) continue;
    const PeakTable& t = peak_table(isa);
    EXPECT_EQ(t.isa, isa);
    EXPECT_FALSE(t.int8_name.empty() || t.f32_name.empty());
    t.int8_rounds(3);
    t.f32_rounds(3);
    t.read(memory, sizeof memory, 1);
    t.read(memory, sizeof memory, kReadStreams);
  }
}

TEST(MachineBench, QuickLookFillsEveryField) {
  ThreadPool pool(2);
  std::vector<std::string> said;
  const auto p = measure_machine(pool, {.isa = best_isa(),
                                        .memory_limit = uint64_t{3} << 20,
                                        .quick = true,
                                        .progress = [&](const std::string& what) { said.push_back(what); }});
  ASSERT_TRUE(p.ok()) << p.message();
  EXPECT_EQ(p->threads, 2u);
  EXPECT_GT(p->clock_hz, 1e8);
  EXPECT_GT(p->barrier_seconds, 0);
  ASSERT_EQ(p->reads.size(), 2u);  // 1 MiB, and 16 cut to 3
  EXPECT_EQ(p->reads[0].bytes, uint64_t{1} << 20);
  EXPECT_EQ(p->reads[1].bytes, uint64_t{3} << 20);
  EXPECT_FALSE(said.empty());
  const auto again = HardwareProfile::from_json(p->to_json());
  EXPECT_TRUE(again.ok()) << again.message();
}

// Processors start at most two vector multiplications per cycle: more is a loop that the compiler thinned
// out.
TEST(MachineBench, RatesFitTheClock) {
  constexpr double kPerCycle = 2.5;  // the clock may have been lower when it was measured
  struct Lanes {
    Isa isa;
    double int8, f32;
  };
  ThreadPool pool(1);
  for (const Lanes& lanes : {Lanes{Isa::kScalar, 4, 4}, {Isa::kAvx2, 32, 8}, {Isa::kAvx512Vnni, 64, 16}}) {
    if (!isa_supported(lanes.isa)) continue;
    const auto p =
        measure_machine(pool, {.isa = lanes.isa, .memory_limit = 1 << 20, .quick = true, .progress = {}});
    ASSERT_TRUE(p.ok()) << p.message();
    EXPECT_LT(p->clock_hz, 1e10);
    EXPECT_LT(p->int8_macs.one_thread / p->clock_hz, kPerCycle * lanes.int8) << isa_name(lanes.isa);
    EXPECT_LT(p->f32_macs.one_thread / p->clock_hz, kPerCycle * lanes.f32) << isa_name(lanes.isa);
    EXPECT_LT(p->reads[0].rate.one_thread / p->clock_hz, 4 * 64) << isa_name(lanes.isa);
  }
}

// What a kernel reads in a second, the machine reads: floors are made from these rates.
TEST(MachineBench, NoKernelReadsFasterThanTheMachine) {
  ThreadPool pool(2);
  const auto p = measure_machine(pool, {.isa = best_isa(),
                                        .memory_limit = uint64_t{16} << 20,
                                        .brief = true,
                                        .formats = {DType::kQ8_0},
                                        .head_dims = {64},
                                        .kv_types = {KvType::kF16},
                                        .progress = {}});
  ASSERT_TRUE(p.ok()) << p.message();
  ASSERT_TRUE(p->kernels);
  EXPECT_EQ(p->kernels->memory_bytes, uint64_t{16} << 20);
  constexpr double kBytesPerValue = 34.0 / 32;
  const double reached = kBytesPerValue / p->kernels->of(DType::kQ8_0).memory.front();
  for (const auto& read : p->reads) EXPECT_GE(read.rate.all_threads, reached * (1 - 1e-9));
}

// Plain reading takes 4 ps a byte in cache, 8 ps of 64 MiB, 12 ps of 256 MiB and more; a kernel 10 ps. A byte
// from memory takes 6 instead of 8 ps more than one in cache, of 64 MiB as ever every second does.
TEST(MachineBench, KernelsRaiseWhatComesFromMemory) {
  constexpr double kBytesPerValue = 34.0 / 32;
  HardwareProfile m;
  m.threads = 2;
  m.reads = {{1 << 15, {1e11, 5e11}},
             {1 << 20, {1e11, 2.5e11}},
             {1 << 26, {1e11, 1.25e11}},
             {1 << 28, {1e11, 1 / 12e-12}},
             {1 << 30, {1e11, 1 / 12e-12}}};
  KernelRates kernels;
  kernels.linear = {{DType::kQ8_0, 0, {1e-12}, {10e-12 * kBytesPerValue}},
                    {DType::kF32, 0, {1e-12}, {11e-12 * 4}}};
  kernels.memory_bytes = 1 << 30;
  m.kernels = kernels;
  raise_reads(m);
  const double expected[] = {2e-12, 4e-12, 7e-12, 10e-12, 10e-12};
  for (size_t i = 0; i < m.reads.size(); ++i) {
    EXPECT_NEAR(1 / m.reads[i].rate.all_threads, expected[i], 1e-18) << i;
    EXPECT_EQ(m.reads[i].rate.one_thread, 1e11) << i;
  }
  HardwareProfile slower = m;
  slower.kernels->linear = {{DType::kQ8_0, 0, {1e-12}, {11e-12 * kBytesPerValue}}};
  raise_reads(slower);
  EXPECT_NEAR(1 / slower.reads[3].rate.all_threads, 10e-12, 1e-18);
  // A kernel that reads memory faster than plain reading does the caches.
  m.kernels->linear = {{DType::kQ8_0, 0, {1e-12}, {3e-12 * kBytesPerValue}}};
  raise_reads(m);
  EXPECT_NEAR(1 / m.reads[0].rate.all_threads, 2e-12, 1e-18);
  EXPECT_NEAR(1 / m.reads[1].rate.all_threads, 3e-12, 1e-18);
  EXPECT_NEAR(1 / m.reads[4].rate.all_threads, 3e-12, 1e-18);
}

TEST(MachineProber, LooksTwice) {
  ThreadPool pool(2);
  auto prober = MachineProber::make(pool, best_isa(), uint64_t{2} << 20);
  ASSERT_TRUE(prober.ok()) << prober.message();
  for (int i = 0; i < 2; ++i) {
    const MachineProbe probe = prober->look();
    EXPECT_EQ(probe.read_bytes, uint64_t{2} << 20);
    EXPECT_GT(probe.clock_hz, 0);
    EXPECT_GT(probe.int8_macs, 0);
    EXPECT_GT(probe.read_rate, 0);
  }
}

}  // namespace
}  // namespace kvasir
