#include "gguf/metadata_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "gguf/gguf_builder.h"
#include "gguf/gguf_file.h"

namespace kvasir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kU8 = 0, kI8 = 1, kU16 = 2, kI16 = 3, kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8,
                   kArray = 9, kU64 = 10, kI64 = 11, kF64 = 12;

// The metadata of a file that `builder` makes, or the refusal.
Result<GgufMetadata> read(const GgufBuilder& builder) {
  const std::vector<std::byte> bytes = builder.build();
  KVASIR_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::parse(bytes, "m"));
  return file.metadata();
}

Result<GgufMetadata> read_one(uint32_t type, const ByteWriter& value) {
  return read(GgufBuilder().pair("key", type, value));
}

void expect_refused(const Result<GgufMetadata>& result, const std::vector<std::string>& parts) {
  ASSERT_FALSE(result.ok());
  for (const std::string& part : parts) EXPECT_THAT(result.message(), HasSubstr(part));
}

template <class T>
GgufMetadata::Value value_of(uint32_t type, T stored) {
  const Result<GgufMetadata> metadata = read_one(type, ByteWriter().put(stored));
  EXPECT_TRUE(metadata.ok());
  return metadata.ok() ? *metadata->find("key") : GgufMetadata::Value();
}

TEST(MetadataReader, WidensEveryScalarType) {
  using Value = GgufMetadata::Value;
  EXPECT_EQ(value_of<uint8_t>(kU8, 255), Value(int64_t{255}));
  EXPECT_EQ(value_of<int8_t>(kI8, -128), Value(int64_t{-128}));
  EXPECT_EQ(value_of<uint16_t>(kU16, 65535), Value(int64_t{65535}));
  EXPECT_EQ(value_of<int16_t>(kI16, -32768), Value(int64_t{-32768}));
  EXPECT_EQ(value_of<uint32_t>(kU32, 4294967295u), Value(int64_t{4294967295}));
  EXPECT_EQ(value_of<int32_t>(kI32, std::numeric_limits<int32_t>::min()), Value(int64_t{-2147483648}));
  EXPECT_EQ(value_of<uint64_t>(kU64, uint64_t{INT64_MAX}), Value(INT64_MAX));
  EXPECT_EQ(value_of<int64_t>(kI64, INT64_MIN), Value(INT64_MIN));
  EXPECT_EQ(value_of<float>(kF32, 0.1f), Value(static_cast<double>(0.1f)));
  EXPECT_EQ(value_of<double>(kF64, 0.1), Value(0.1));
  EXPECT_EQ(value_of<uint8_t>(kBool, 1), Value(true));
  EXPECT_EQ(value_of<uint8_t>(kBool, 0), Value(false));
  const Result<GgufMetadata> text = read_one(kString, ByteWriter().put_string("w\xC3\xB6rt"));
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text->find("key"), Value(std::string("w\xC3\xB6rt")));
}

ByteWriter array_of(uint32_t type, uint64_t count) {
  return ByteWriter().put(type).put(count);
}

TEST(MetadataReader, ReadsArraysOfEveryKind) {
  GgufBuilder builder;
  builder.pair("ints", kArray, array_of(kI16, 3).put(int16_t{-1}).put(int16_t{0}).put(int16_t{7}));
  builder.pair("floats", kArray, array_of(kF32, 2).put(0.5f).put(-2.0f));
  builder.pair("bools", kArray, array_of(kBool, 2).put(uint8_t{1}).put(uint8_t{0}));
  builder.pair("strings", kArray, array_of(kString, 2).put_string("").put_string("x"));
  builder.pair("one", kArray, array_of(kU8, 1).put(uint8_t{9}));
  builder.pair("none", kArray, array_of(kU64, 0));
  const Result<GgufMetadata> metadata = read(builder);
  ASSERT_TRUE(metadata.ok()) << metadata.message();
  EXPECT_THAT(*metadata->get_ints("ints").value(), ElementsAre(-1, 0, 7));
  EXPECT_THAT(*metadata->get_floats("floats").value(), ElementsAre(0.5, -2.0));
  EXPECT_THAT(*metadata->get_bools("bools").value(), ElementsAre(true, false));
  EXPECT_THAT(*metadata->get_strings("strings").value(), ElementsAre("", "x"));
  EXPECT_THAT(*metadata->get_ints("one").value(), ElementsAre(9));
  EXPECT_TRUE(metadata->get_ints("none").value()->empty());
}

TEST(MetadataReader, RefusesArraysOfArrays) {
  expect_refused(read_one(kArray, array_of(kArray, 1).put(kU8).put(uint64_t{0})),
                 {"'key'", "array of arrays"});
  ByteWriter deep;
  for (int depth = 0; depth < 1000; ++depth) deep.put(kArray).put(uint64_t{1});
  expect_refused(read_one(kArray, deep), {"'key'", "array of arrays"});
}

TEST(MetadataReader, RefusesUnknownTypes) {
  for (const uint32_t type : {13u, 255u, 0xFFFFFFFFu}) {
    expect_refused(read_one(type, ByteWriter().put(uint64_t{0})),
                   {"'key' has value type " + std::to_string(type)});
    expect_refused(read_one(kArray, array_of(type, 1).put(uint64_t{0})),
                   {"'key' has value type " + std::to_string(type)});
  }
}

TEST(MetadataReader, RefusesCountsTheFileCannotHold) {
  for (const uint64_t count : {uint64_t{100}, uint64_t{1} << 60, uint64_t{1} << 61, UINT64_MAX})
    for (const uint32_t type : {kU8, kU16, kF32, kBool, kU64, kString})
      expect_refused(read_one(kArray, array_of(type, count).put(uint8_t{0})),
                     {"'key'", std::to_string(count)});
}

TEST(MetadataReader, RefusesMoreValuesThanAnyModelHas) {
  const uint64_t count = (uint64_t{1} << 24) + 1;
  ByteWriter value = array_of(kU8, count);
  value.append(std::vector<std::byte>(count));
  expect_refused(read_one(kArray, value), {"'key' has 16777217 values", "16777216"});
}

TEST(MetadataReader, RefusesMoreKeysThanAnyModelHas) {
  GgufBuilder builder;
  for (int i = 0; i <= 65536; ++i) builder.u32(std::to_string(i), 1);
  expect_refused(read(builder), {"65537 metadata keys", "65536"});
}

// The string is all hole: nothing of it may be copied before it is refused.
TEST(MetadataReader, RefusesMoreBytesThanAnyModelHas) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("kvasir-sparse-" + std::to_string(getpid()) + ".gguf");
  constexpr uint64_t kLength = uint64_t{1} << 33;
  const std::vector<std::byte> head = GgufBuilder().pair("key", kString, ByteWriter().put(kLength)).build();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(head.data()), static_cast<std::streamsize>(head.size()));
  std::filesystem::resize_file(path, head.size() + kLength);
  const Result<GgufFile> file = GgufFile::open(path);
  std::filesystem::remove(path);
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.message(), HasSubstr("string 0 of metadata key 'key' of 8589934592 bytes"));
}

TEST(MetadataReader, RefusesStringLengthsTheFileCannotHold) {
  for (const uint64_t length : {uint64_t{100}, uint64_t{1} << 63, UINT64_MAX}) {
    expect_refused(read_one(kString, ByteWriter().put(length).put('x')), {"'key'", std::to_string(length)});
    expect_refused(read_one(kArray, array_of(kString, 1).put(length).put('x')),
                   {"string 0 of metadata key 'key'", std::to_string(length)});
    expect_refused(read(GgufBuilder().raw_pair(ByteWriter().put(length).put(uint64_t{0}))),
                   {"a metadata key", std::to_string(length)});
  }
}

TEST(MetadataReader, RefusesBadKeys) {
  expect_refused(read(GgufBuilder().u32("", 1)), {"key", "0 bytes long"});
  expect_refused(read(GgufBuilder().u32(std::string(65536, 'k'), 1)), {"key", "65536 bytes long"});
  expect_refused(read(GgufBuilder().u32("same", 1).f32("same", 2)), {"'same' is there twice"});
}

TEST(MetadataReader, RefusesValuesOutsideTheirType) {
  expect_refused(read_one(kBool, ByteWriter().put(uint8_t{2})), {"'key'", "boolean", "2"});
  expect_refused(read_one(kU64, ByteWriter().put(uint64_t{1} << 63)), {"'key' is 9223372036854775808"});
}

}  // namespace
}  // namespace kvasir
