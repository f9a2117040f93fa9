#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <fstream>

#include "apps/kvasir/bench_machine.h"
#include "apps/kvasir/cli.h"
#include "apps/kvasir/machine_file.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// The bench verb as `kvasir` has it, given a command line.
struct BenchVerb {
  CLI::App root{"kvasir"};
  Verb verb = add_bench_verb(root);
  std::string errors;

  // Exit code, as main() would make it.
  int run(const std::string& line) {
    try {
      root.parse(line, false);
    } catch (const CLI::ParseError& error) {
      errors = error.what();
      return kExitUsage;
    }
    testing::internal::CaptureStderr();
    const int code = verb.run();
    errors = testing::internal::GetCapturedStderr();
    return code;
  }
};

class TemporaryFolder : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(path_); }
  void TearDown() override { fs::remove_all(path_); }
  const fs::path path_ = fs::temp_directory_path() / ("kvasir_app_" + std::to_string(getpid()));
};
using BenchFlags = TemporaryFolder;
using MachineFile = TemporaryFolder;

TEST_F(BenchFlags, WithoutAModelItSaysWhatToGive) {
  BenchVerb bench;
  EXPECT_EQ(bench.run("bench"), kExitUsage);
  EXPECT_THAT(bench.errors, HasSubstr("`kvasir bench machine`"));
}

TEST_F(BenchFlags, WrongValuesAreRefused) {
  EXPECT_EQ(BenchVerb().run("bench m.gguf -o xml"), kExitUsage);
  EXPECT_EQ(BenchVerb().run("bench m.gguf -b 0"), kExitUsage);
  EXPECT_EQ(BenchVerb().run("bench m.gguf -t 0"), kExitUsage);
  EXPECT_EQ(BenchVerb().run("bench m.gguf --machine a.json --no-machine"), kExitUsage);
  EXPECT_EQ(BenchVerb().run("bench machine -o csv"), kExitUsage);
  EXPECT_EQ(BenchVerb().run("bench machine --isa z80"), kExitUsage);
  EXPECT_EQ(BenchVerb().run("bench no-such-file.gguf --depth 16"), kExitModel);
}

TEST_F(BenchFlags, AFormatIsNotAFile) {
  BenchVerb bench;
  EXPECT_EQ(bench.run("bench machine --output json"), kExitUsage);
  EXPECT_THAT(bench.errors, HasSubstr("`-o json`"));
  EXPECT_FALSE(fs::exists("json"));
}

TEST_F(BenchFlags, MachineIsMeasuredAndKept) {
  const std::string file = path_ / "new" / "machine.json";
  BenchVerb bench;
  testing::internal::CaptureStdout();
  const int code = bench.run("bench machine --quick -t 1 --output " + file);
  const std::string printed = testing::internal::GetCapturedStdout();
  ASSERT_EQ(code, kExitOk) << bench.errors;
  EXPECT_THAT(printed, HasSubstr("| int8 multiply-adds"));
  EXPECT_THAT(printed, HasSubstr("kept in " + file));
  const auto kept = load_machine(file);
  ASSERT_TRUE(kept.ok()) << kept.message();
  EXPECT_EQ(kept->threads, 1u);
}

TEST_F(MachineFile, ReadsWhatItWrote) {
  HardwareProfile m;
  m.clock_hz = 3e9;
  m.int8_macs = m.f32_macs = {1e11, 2e11};
  m.reads = {{4096, {1e10, 2e10}}};
  const std::string file = path_ / "a" / "b.json";
  ASSERT_TRUE(save_machine(m, file).ok());
  m.threads = 2;
  ASSERT_TRUE(save_machine(m, file).ok());
  const auto read = load_machine(file);
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_EQ(read->to_json(), m.to_json());
  EXPECT_EQ(std::distance(fs::directory_iterator(path_ / "a"), {}), 1);  // no draft stays behind
}

TEST_F(MachineFile, FaultsNameTheFile) {
  const std::string file = path_ / "m.json";
  EXPECT_EQ(load_machine(file).status().code(), ErrorCode::kNotFound);
  fs::create_directories(path_);
  std::ofstream(file) << "{\"version\": 7}";
  const auto read = load_machine(file);
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.message(), HasSubstr(file + ": machine profile: 'version' is 7"));
  EXPECT_FALSE(load_machine(path_).ok());
  EXPECT_THAT(save_machine({}, file + "/below/it.json").message(), HasSubstr("cannot be written"));
}

TEST(MachineMarkdown, SaysWhetherThreadsShareACore) {
  HardwareProfile m;
  m.cpu = "Some CPU";
  m.threads = 2;
  m.cores = 2;
  m.int8_macs = {1e11, 1.1e11};
  EXPECT_THAT(machine_md(m),
              HasSubstr("2 threads, on 2 cores as /sys says; together 1.10 times one thread's"));
  EXPECT_THAT(machine_md(m), HasSubstr("they share cores, or others use them"));
  m.int8_macs.all_threads = 1.98e11;
  EXPECT_THAT(machine_md(m), HasSubstr("cores of their own"));
  EXPECT_THAT(machine_md(m), testing::Not(HasSubstr("measure again")));
  m.others = 0.3;
  EXPECT_THAT(machine_md(m),
              HasSubstr("others used 30.0 % of the CPUs, and 0.0 % were stolen: measure again"));
}

}  // namespace
}  // namespace kvasir
