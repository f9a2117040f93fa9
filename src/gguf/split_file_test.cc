#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gguf/gguf_builder.h"
#include "gguf/gguf_file.h"
#include "gguf/split_name.h"

namespace kvasir {
namespace {

using testing::HasSubstr;

TEST(SplitName, TakesNamesApart) {
  const std::optional<SplitName> split = parse_split_name("/m/q-7b-00002-of-00003.gguf");
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->prefix, "/m/q-7b");
  EXPECT_EQ(split->number, 2u);
  EXPECT_EQ(split->count, 3u);
  EXPECT_EQ(split->sibling(3), "/m/q-7b-00003-of-00003.gguf");
}

TEST(SplitName, KnowsWhatIsNone) {
  for (const char* name : {"", ".gguf", "m.gguf", "m-1-of-3.gguf", "m-00001-of-00003.bin",
                           "m-00000-of-00003.gguf", "m-00004-of-00003.gguf", "m-0000a-of-00003.gguf",
                           "m_00001-of-00003.gguf", "m-00001-of--0003.gguf", "00001-of-00003.gguf"})
    EXPECT_FALSE(parse_split_name(name).has_value()) << name;
}

class SplitFile : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("kvasir-split-" + std::to_string(getpid()) + "-" + info->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(int number, int count = 3) const {
    return SplitName{folder_ / "m", static_cast<uint32_t>(number), static_cast<uint32_t>(count)}.sibling(
        static_cast<uint32_t>(number));
  }

  static void write(const std::string& path, const std::vector<std::byte>& bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }

  // File `number` of 3, with one tensor called `name` whose four bytes each are `number`.
  void write_shard(int number, const std::string& name, int said_number = 0, int said_count = 3,
                   int total = 3) const {
    GgufBuilder builder;
    if (number == 1) builder.string("general.architecture", "llama");
    const int no = said_number != 0 ? said_number : number;
    builder.u16("split.no", static_cast<uint16_t>(no - 1))
        .u16("split.count", static_cast<uint16_t>(said_count));
    builder.i32("split.tensors.count", total);
    builder.tensor(name, 0, {1}, std::vector<std::byte>(4, static_cast<std::byte>(number)));
    write(path(number), builder.build());
  }

  void expect_refused(const std::string& file, const std::vector<std::string>& parts) const {
    const Result<GgufFile> result = GgufFile::open(file);
    ASSERT_FALSE(result.ok());
    for (const std::string& part : parts) EXPECT_THAT(result.message(), HasSubstr(part));
  }

  std::filesystem::path folder_;
};

TEST_F(SplitFile, IsReadAsOneModel) {
  write_shard(1, "a");
  write_shard(2, "b");
  write_shard(3, "c");
  const Result<GgufFile> file = GgufFile::open(path(1));
  ASSERT_TRUE(file.ok()) << file.message();
  ASSERT_EQ(file->tensors().size(), 3u);
  EXPECT_EQ(file->file_bytes(), std::filesystem::file_size(path(1)) + std::filesystem::file_size(path(2)) +
                                    std::filesystem::file_size(path(3)));
  EXPECT_EQ(file->metadata().require_string("general.architecture").value(), "llama");
  const char* names[] = {"a", "b", "c"};
  for (uint32_t i = 0; i < 3; ++i) {
    const TensorInfo* tensor = file->find_tensor(names[i]);
    ASSERT_NE(tensor, nullptr) << names[i];
    EXPECT_EQ(tensor->shard, i);
    file->release(*tensor);  // read again from the file when touched
    const std::vector<std::byte> want(4, static_cast<std::byte>(i + 1));
    EXPECT_EQ(std::memcmp(tensor->view.data, want.data(), 4), 0);
  }
}

TEST_F(SplitFile, NeedsEveryFile) {
  write_shard(1, "a");
  write_shard(2, "b");
  expect_refused(path(1), {"00003-of-00003.gguf", "No such file"});
}

TEST_F(SplitFile, IsOpenedByItsFirst) {
  write_shard(1, "a");
  write_shard(2, "b");
  expect_refused(path(2), {"file 2 of 3", "00001-of-00003.gguf"});
}

TEST_F(SplitFile, NeedsItsName) {
  write_shard(1, "a");
  std::filesystem::rename(path(1), folder_ / "other.gguf");
  expect_refused(folder_ / "other.gguf", {"'split.count' is 3", "-00001-of-00003.gguf"});
}

TEST_F(SplitFile, ChecksItsKeys) {
  write_shard(1, "a");
  write_shard(2, "b", 3);
  write_shard(3, "c");
  expect_refused(path(1), {"00002-of-00003.gguf", "'split.no' is 2", "says 1"});
  write_shard(2, "b", 2, 4);
  expect_refused(path(1), {"00002-of-00003.gguf", "'split.count' is 4", "says 3"});
  write_shard(2, "b");
  write_shard(1, "a", 1, 2);
  expect_refused(path(1), {"'split.count' is 2", "says 3"});
  write_shard(1, "a", 1, 3, 4);
  expect_refused(path(1), {"'split.tensors.count' is 4", "hold 3 tensors"});
  write_shard(1, "a", 1, 3, -1);
  expect_refused(path(1), {"'split.tensors.count' is -1"});
}

TEST_F(SplitFile, WithoutKeysIsRefused) {
  GgufBuilder builder;
  builder.tensor("a", 0, {1}, std::vector<std::byte>(4));
  write(path(1), builder.build());
  expect_refused(path(1), {"'split.no' is missing"});
}

TEST_F(SplitFile, MayNotHoldATensorTwice) {
  write_shard(1, "a");
  write_shard(2, "b");
  write_shard(3, "a");
  expect_refused(path(1), {"tensor 'a' is there twice"});
}

TEST_F(SplitFile, NamesTheDamagedFile) {
  write_shard(1, "a");
  write_shard(2, "b");
  write_shard(3, "c");
  std::filesystem::resize_file(path(3), std::filesystem::file_size(path(3)) - 1);
  expect_refused(path(1), {"00003-of-00003.gguf", "tensor 'c' needs 4 bytes"});
}

TEST_F(SplitFile, OfOneIsAnOrdinaryFile) {
  GgufBuilder builder;
  builder.u16("split.no", 0).u16("split.count", 1).i32("split.tensors.count", 1);
  builder.tensor("a", 0, {1}, std::vector<std::byte>(4));
  write(path(1, 1), builder.build());
  write(folder_ / "plain.gguf", builder.build());
  EXPECT_TRUE(GgufFile::open(path(1, 1)).ok());
  EXPECT_TRUE(GgufFile::open(folder_ / "plain.gguf").ok());
}

TEST_F(SplitFile, FilesThatAreNoneAreRefused) {
  expect_refused(folder_ / "absent.gguf", {"absent.gguf", "No such file"});
  expect_refused(folder_, {"not a regular file"});
  write(folder_ / "empty.gguf", {});
  expect_refused(folder_ / "empty.gguf", {"empty"});
}

}  // namespace
}  // namespace kvasir
