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

TEST(KvPoolBytes, EnoughForAllButNotMoreThanFourFifths) {
  const KvLayout layout =
      KvLayout::make(std::vector<KvLayerSpec>(8, {2, 64, 0}), 32).value();  // 4 KiB a token
  const MemoryReadings plenty = {1000 * kMiB, std::nullopt};
  EXPECT_EQ(kv_pool_bytes(layout, plenty, 0, 4, 1024).value(), 4 * 1024 * 4096u);
  EXPECT_EQ(kv_pool_bytes(layout, plenty, 0, 4000000000u, 131072).value(), 800 * kMiB);
  const MemoryReadings boxed = {1000 * kMiB, 100 * kMiB};
  EXPECT_EQ(kv_pool_bytes(layout, boxed, 0, 64, 131072).value(), 80 * kMiB);
  EXPECT_EQ(kv_pool_bytes(layout, boxed, 90 * kMiB, 64, 131072).value(), 90 * kMiB);
}

TEST(KvPoolBytes, Int8HoldsAlmostTwiceTheTokens) {
  const std::vector<KvLayerSpec> layers(8, {2, 64, 0});
  const MemoryReadings boxed = {100 * kMiB, std::nullopt};
  uint64_t tokens[2];
  for (const KvType type : {KvType::kF16, KvType::kInt8}) {
    const KvLayout layout = KvLayout::make(layers, 32, type).value();
    const uint64_t bytes = kv_pool_bytes(layout, boxed, 0, 64, 131072).value();
    EXPECT_EQ(bytes, 80 * kMiB);
    tokens[static_cast<size_t>(type)] = bytes / layout.bytes_per_token();
  }
  EXPECT_GT(tokens[1], tokens[0] * 18 / 10);
}

TEST(KvPoolBytes, RefusesWhatIsNotThere) {
  const KvLayout layout = KvLayout::make(std::vector<KvLayerSpec>(8, {2, 64, 0}), 32).value();
  const Result<uint64_t> more = kv_pool_bytes(layout, {100 * kMiB, std::nullopt}, 200 * kMiB, 1, 64);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.status().code(), ErrorCode::kResourceExhausted);
  EXPECT_NE(more.message().find("200"), std::string::npos);
  EXPECT_NE(more.message().find("100"), std::string::npos);
  EXPECT_FALSE(kv_pool_bytes(layout, {1000, std::nullopt}, 0, 1, 64).ok());
}

}  // namespace
}  // namespace kvasir
