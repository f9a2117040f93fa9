#include "engine/memory_plan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace kvasir {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// A made-up /proc and /sys.
class MemoryFiles : public testing::Test {
 protected:
  MemoryFiles()
      : root_(std::filesystem::temp_directory_path() / ("kvasir_memory_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(root_);
    write("/proc/meminfo", "MemTotal:  16384 kB\nMemFree:  100 kB\nMemAvailable:   8192 kB\n");
  }
  ~MemoryFiles() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.string() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  uint64_t usable() { return usable_memory(read_memory(root_.string())); }

  std::filesystem::path root_;
};

TEST_F(MemoryFiles, WithoutCgroupsWhatTheKernelSaysIsAvailable) {
  EXPECT_EQ(usable(), 8 * kMiB);
  EXPECT_FALSE(read_memory(root_.string()).cgroup_left.has_value());
}

TEST_F(MemoryFiles, CgroupV2LimitOfAParentCounts) {
  write("/proc/self/cgroup", "0::/user.slice/app.service\n");
  const std::string base = "/sys/fs/cgroup/user.slice";
  write(base + "/app.service/memory.max", "max\n");
  write(base + "/app.service/memory.current", "1000\n");
  write(base + "/memory.max", "6291456\n");
  write(base + "/memory.current", "4194304\n");
  write(base + "/memory.stat", "anon 12\ninactive_file 1048576\nactive_file 5\n");
  EXPECT_EQ(usable(), 3 * kMiB);  // 6 less (4 less 1 that can be dropped)
}

TEST_F(MemoryFiles, InAContainerTheMountPointIsOurCgroup) {
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/memory.max", "5242880\n");
  write("/sys/fs/cgroup/memory.current", "1048576\n");
  EXPECT_EQ(usable(), 4 * kMiB);
}

TEST_F(MemoryFiles, CgroupV1AndItsWordForUnlimited) {
  write("/proc/self/cgroup", "12:cpu,cpuacct:/x\n5:memory:/box\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1048576\n");
  EXPECT_EQ(usable(), 8 * kMiB);
  write("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "4194304\n");
  write("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "3145728\n");
  write("/sys/fs/cgroup/memory/box/memory.stat", "total_inactive_file 1048576\n");
  EXPECT_EQ(usable(), 2 * kMiB);
}

TEST_F(MemoryFiles, UsageAboveTheLimitLeavesNothing) {
  write("/sys/fs/cgroup/memory.max", "1048576\n");
  write("/sys/fs/cgroup/memory.current", "2097152\n");
  EXPECT_EQ(usable(), 0u);
}

TEST_F(MemoryFiles, TheLimitThatLeavesLeastIsNamed) {
  write("/proc/self/cgroup", "0::/app\n");
  write("/sys/fs/cgroup/app/memory.max", "7340032\n");
  write("/sys/fs/cgroup/app/memory.current", "1048576\n");
  write("/sys/fs/cgroup/memory.max", "5242880\n");
  write("/sys/fs/cgroup/memory.current", "2097152\n");
  const MemoryReadings readings = read_memory(root_.string());
  EXPECT_EQ(readings.cgroup_left, 3 * kMiB);
  EXPECT_EQ(readings.cgroup_limit, 5 * kMiB);
}

class KvPoolPlans : public testing::Test {
 protected:
  // 4 KiB a token, blocks of 32.
  KvLayout layout_ = KvLayout::make(std::vector<KvLayerSpec>(8, {2, 64, 0}), 32).value();
  MemoryReadings free_{1000 * kMiB, std::nullopt, 0};
  MemoryReadings boxed_{1000 * kMiB, 100 * kMiB, 128 * kMiB};

  KvPoolPlan plan(const MemoryReadings& readings, const KvPoolWish& wish) {
    return plan_kv_pool(layout_, readings, wish).value();
  }
};

TEST_F(KvPoolPlans, EnoughForAllButNotMoreThanFourFifths) {
  KvPoolPlan p = plan(free_, {.max_num_seqs = 4, .max_model_len = 1024});
  EXPECT_EQ(p.bytes, 4 * 1024 * 4096u);
  EXPECT_EQ(p.reason, "enough for 4 sequences of 1024 tokens");
  p = plan(free_, {.max_num_seqs = 4000000000u, .max_model_len = 131072});
  EXPECT_EQ(p.bytes, 800 * kMiB);
  EXPECT_EQ(p.reason, "four fifths of the 1000 MiB of memory that are free");
  p = plan(boxed_, {.max_num_seqs = 64, .max_model_len = 131072});
  EXPECT_EQ(p.bytes, 80 * kMiB);
  EXPECT_EQ(p.reason, "four fifths of the 100 MiB that the container's limit of 128 MiB leaves");
  p = plan(boxed_, {.bytes = 90 * kMiB, .max_num_seqs = 64, .max_model_len = 131072});
  EXPECT_EQ(p.bytes, 90 * kMiB);
  EXPECT_EQ(p.reason, "as was asked for");
}

TEST_F(KvPoolPlans, WhatElseIsNeededIsLeft) {
  const KvPoolPlan p = plan(boxed_, {.reserved = 30 * kMiB, .max_num_seqs = 64, .max_model_len = 131072});
  EXPECT_EQ(p.bytes, 70 * kMiB);
  EXPECT_EQ(p.reason,
            "of the 100 MiB that the container's limit of 128 MiB leaves, less 30 MiB for everything "
            "else");
  const KvPoolWish most = {.bytes = 70 * kMiB, .reserved = 30 * kMiB};
  EXPECT_EQ(plan(boxed_, most).bytes, 70 * kMiB);
  const auto more = plan_kv_pool(layout_, boxed_, {.bytes = 71 * kMiB, .reserved = 30 * kMiB});
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.status().code(), ErrorCode::kResourceExhausted);
  for (const char* number : {"71 MiB", "100 MiB", "128 MiB", "30 MiB", "at most 70 MiB"})
    EXPECT_NE(more.message().find(number), std::string::npos) << more.message();
}

TEST_F(KvPoolPlans, Int8HoldsAlmostTwiceTheTokens) {
  const std::vector<KvLayerSpec> layers(8, {2, 64, 0});
  uint64_t tokens[2];
  for (const KvType type : {KvType::kF16, KvType::kInt8}) {
    layout_ = KvLayout::make(layers, 32, type).value();
    const uint64_t bytes = plan(boxed_, {.max_num_seqs = 64, .max_model_len = 131072}).bytes;
    EXPECT_EQ(bytes, 80 * kMiB);
    tokens[static_cast<size_t>(type)] = bytes / layout_.bytes_per_token();
  }
  EXPECT_GT(tokens[1], tokens[0] * 18 / 10);
}

TEST_F(KvPoolPlans, RefusesWhatIsNotThere) {
  EXPECT_FALSE(plan_kv_pool(layout_, boxed_, {.bytes = 200 * kMiB}).ok());
  EXPECT_FALSE(plan_kv_pool(layout_, {1000, std::nullopt, 0}, {.max_num_seqs = 1, .max_model_len = 64}).ok());
  EXPECT_FALSE(
      plan_kv_pool(layout_, boxed_, {.reserved = 100 * kMiB, .max_num_seqs = 1, .max_model_len = 64}).ok());
}

}  // namespace
}  // namespace kvasir
