#include "gguf/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "gguf/gguf_builder.h"

namespace kvasir {
namespace {

using testing::HasSubstr;

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ8_0 = 8;
constexpr uint32_t kMxfp4 = 39;
constexpr uint64_t kHuge = uint64_t{1} << 60;

std::vector<std::byte> counting_bytes(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  return bytes;
}

// Two pairs and two tensors: nothing wrong with it.
GgufBuilder sound() {
  GgufBuilder builder;
  builder.string("general.architecture", "llama").u32("llama.block_count", 3);
  builder.tensor("a", kF32, {4, 2}, counting_bytes(32)).tensor("b", kQ8_0, {32, 3}, counting_bytes(102));
  return builder;
}

void expect_refused(const std::vector<std::byte>& bytes, const std::vector<std::string>& parts) {
  const auto start = std::chrono::steady_clock::now();
  const Result<GgufFile> file = GgufFile::parse(bytes, "bad.gguf");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.message(), HasSubstr("'bad.gguf': "));
  for (const std::string& part : parts) EXPECT_THAT(file.message(), HasSubstr(part));
}

TEST(GgufFile, ReadsVersionsTwoAndThree) {
  for (const uint32_t version : {2u, 3u}) {
    GgufBuilder builder = sound();
    builder.version = version;
    const std::vector<std::byte> bytes = builder.build();
    const Result<GgufFile> file = GgufFile::parse(bytes, "m");
    ASSERT_TRUE(file.ok()) << file.message();
    EXPECT_EQ(file->version(), version);
    EXPECT_EQ(file->path(), "m");
    EXPECT_EQ(file->file_bytes(), bytes.size());
    EXPECT_EQ(file->metadata().entries().size(), 2u);
    EXPECT_EQ(file->metadata().require_int("llama.block_count", 0, 100).value(), 3);
  }
}

TEST(GgufFile, FindsTensorsAndTheirValues) {
  const std::vector<std::byte> bytes = sound().build();
  const Result<GgufFile> file = GgufFile::parse(bytes, "m");
  ASSERT_TRUE(file.ok()) << file.message();
  ASSERT_EQ(file->tensors().size(), 2u);
  const TensorInfo* a = file->find_tensor("a");
  const TensorInfo* b = file->find_tensor("b");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_EQ(file->find_tensor("c"), nullptr);
  EXPECT_EQ(file->find_tensor(""), nullptr);
  EXPECT_EQ(a, &file->tensors()[0]);
  EXPECT_EQ(a->view.type, DType::kF32);
  EXPECT_EQ(a->view.shape, (std::array<uint64_t, 4>{4, 2, 1, 1}));
  EXPECT_EQ(b->view.type, DType::kQ8_0);
  EXPECT_EQ(b->view.shape, (std::array<uint64_t, 4>{32, 3, 1, 1}));
  ASSERT_EQ(b->view.bytes(), 102u);
  EXPECT_EQ(std::memcmp(a->view.data, counting_bytes(32).data(), 32), 0);
  EXPECT_EQ(std::memcmp(b->view.data, counting_bytes(102).data(), 102), 0);
  file->release(*a);  // nothing is mapped, nothing happens
  EXPECT_EQ(std::memcmp(a->view.data, counting_bytes(32).data(), 32), 0);
}

TEST(GgufFile, ReadsEveryTypeOfTheTable) {
  GgufBuilder builder;
  for (const DTypeInfo& type : dtype_table())
    builder.tensor(type.name, static_cast<uint32_t>(type.type), {2 * type.block_elements, 3},
                   counting_bytes(6 * type.block_bytes));
  const std::vector<std::byte> bytes = builder.build();
  const Result<GgufFile> file = GgufFile::parse(bytes, "m");
  ASSERT_TRUE(file.ok()) << file.message();
  for (const DTypeInfo& type : dtype_table()) {
    const TensorInfo* tensor = file->find_tensor(type.name);
    ASSERT_NE(tensor, nullptr) << type.name;
    EXPECT_EQ(tensor->view.type, type.type);
    EXPECT_EQ(tensor->view.bytes(), 6 * type.block_bytes);
    EXPECT_EQ(
        std::memcmp(tensor->view.data, counting_bytes(tensor->view.bytes()).data(), tensor->view.bytes()), 0);
  }
}

TEST(GgufFile, HonoursTheAlignmentKey) {
  for (const uint32_t alignment : {1u, 8u, 64u, 4096u}) {
    GgufBuilder builder;
    builder.alignment = alignment;
    builder.u32("general.alignment", alignment);
    builder.tensor("a", kMxfp4, {32}, counting_bytes(17)).tensor("b", kMxfp4, {64}, counting_bytes(34));
    const std::vector<std::byte> bytes = builder.build();
    const Result<GgufFile> file = GgufFile::parse(bytes, "m");
    ASSERT_TRUE(file.ok()) << file.message();
    const std::byte* b = file->find_tensor("b")->view.data;
    EXPECT_EQ(std::memcmp(b, counting_bytes(34).data(), 34), 0);
    EXPECT_EQ((b - bytes.data()) % alignment, 0);
  }
}

TEST(GgufFile, AVocabularyAloneParses) {
  GgufBuilder builder;
  builder.strings("tokenizer.ggml.tokens", {"a", "", std::string("\0\xff", 2)});
  const std::vector<std::byte> bytes = builder.build();
  const Result<GgufFile> file = GgufFile::parse(bytes, "m");
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_TRUE(file->tensors().empty());
  EXPECT_THAT(*file->metadata().require_strings("tokenizer.ggml.tokens").value(),
              testing::ElementsAre("a", "", std::string("\0\xff", 2)));
}

TEST(GgufFile, TensorsMayStandInAnyOrder) {
  GgufBuilder builder;
  builder.tensor("late", kF32, {8}, counting_bytes(32), 32).tensor("early", kF32, {8}, counting_bytes(32), 0);
  const std::vector<std::byte> bytes = builder.build();
  const Result<GgufFile> file = GgufFile::parse(bytes, "m");
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ(file->find_tensor("late")->view.data - file->find_tensor("early")->view.data, 32);
}

TEST(GgufFileRefuses, EveryTruncation) {
  const std::vector<std::byte> whole = sound().build();
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_FALSE(GgufFile::parse(cut, "m").ok()) << size << " of " << whole.size() << " bytes";
  }
}

TEST(GgufFileRefuses, WrongHeaders) {
  std::vector<std::byte> bytes = sound().build();
  bytes[0] = std::byte{'g'};
  expect_refused(bytes, {"not a GGUF file", "67 47 55 46"});
  for (const uint32_t version : {0u, 1u, 4u, 0xFFFFFFFFu}) {
    GgufBuilder builder = sound();
    builder.version = version;
    expect_refused(builder.build(), {"version", std::to_string(version)});
  }
  GgufBuilder swapped = sound();
  swapped.version = 0x03000000;
  expect_refused(swapped.build(), {"big-endian"});
}

TEST(GgufFileRefuses, AbsurdCounts) {
  for (const uint64_t count : {uint64_t{3}, kHuge, UINT64_MAX}) {
    GgufBuilder pairs = sound();
    pairs.claimed_pairs = count;
    EXPECT_FALSE(GgufFile::parse(pairs.build(), "m").ok()) << count;
    GgufBuilder tensors = sound();
    tensors.claimed_tensors = count;
    EXPECT_FALSE(GgufFile::parse(tensors.build(), "m").ok()) << count;
  }
  GgufBuilder pairs = sound();
  pairs.claimed_pairs = kHuge;
  expect_refused(pairs.build(), {"1152921504606846976 metadata keys", "bytes are left"});
  GgufBuilder tensors = sound();
  tensors.claimed_tensors = kHuge;
  expect_refused(tensors.build(), {"1152921504606846976 tensors", "bytes are left"});
}

TEST(GgufFileRefuses, MoreTensorsThanAnyModelHas) {
  GgufBuilder builder;
  for (int i = 0; i <= 1 << 18; ++i) builder.tensor(std::to_string(i), kMxfp4, {32}, {}, 0);
  expect_refused(builder.build(), {"262145 tensors", "262144"});
}

TEST(GgufFileRefuses, BadAlignment) {
  for (const uint32_t alignment : {0u, 3u, 33u}) {
    GgufBuilder builder = sound();
    builder.u32("general.alignment", alignment);
    expect_refused(builder.build(), {"'general.alignment' is " + std::to_string(alignment), "power of two"});
  }
  GgufBuilder builder = sound();
  builder.i32("general.alignment", 32);
  expect_refused(builder.build(), {"'general.alignment' has value type 5"});
  // The largest one is sound in itself, but leaves no room for the data.
  GgufBuilder largest = sound();
  largest.u32("general.alignment", 0x80000000u);
  expect_refused(largest.build(), {"begins at byte 2147483648"});
}

TEST(GgufFileRefuses, BadTensorNames) {
  GgufBuilder empty = sound();
  empty.tensor("", kF32, {4}, counting_bytes(16));
  expect_refused(empty.build(), {"name of tensor 2 is 0 bytes"});
  GgufBuilder lengthy = sound();
  lengthy.tensor(std::string(65, 'x'), kF32, {4}, counting_bytes(16));
  expect_refused(lengthy.build(), {"name of tensor 2 is 65 bytes"});
  GgufBuilder twice = sound();
  twice.tensor("a", kF32, {4}, counting_bytes(16));
  expect_refused(twice.build(), {"tensor 'a' is there twice"});
  GgufBuilder binary = sound();
  binary.tensor("x\n\x80", kF32, {0}, {});
  expect_refused(binary.build(), {"'x\\x0a\\x80'"});
}

TEST(GgufFileRefuses, BadShapes) {
  GgufBuilder five = sound();
  five.tensor("t", kF32, {1, 1, 1, 1, 1}, counting_bytes(4));
  expect_refused(five.build(), {"tensor 't' has 5 dimensions"});
  GgufBuilder none = sound();
  none.tensor("t", kF32, {}, counting_bytes(4));
  expect_refused(none.build(), {"tensor 't' has 0 dimensions"});
  GgufBuilder zero = sound();
  zero.tensor("t", kF32, {4, 0}, {});
  expect_refused(zero.build(), {"dimension 1 of tensor 't' is 0"});
  GgufBuilder row = sound();
  row.tensor("t", kQ8_0, {48}, counting_bytes(68));
  expect_refused(row.build(), {"tensor 't'", "rows of 48", "32", "Q8_0"});
}

TEST(GgufFileRefuses, SizesThatWrap) {
  // Each of these is small modulo 2^64, in bytes or in values.
  const std::vector<std::vector<uint64_t>> shapes = {{uint64_t{1} << 62, 4},
                                                     {uint64_t{1} << 62},
                                                     {(uint64_t{1} << 42) + 1, uint64_t{1} << 22},
                                                     {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX},
                                                     {4, uint64_t{1} << 60},
                                                     {1, 1, 1, uint64_t{1} << 63}};
  for (const auto& shape : shapes) {
    GgufBuilder builder = sound();
    builder.tensor("t", kF32, shape, counting_bytes(64));
    expect_refused(builder.build(), {"tensor 't'", std::to_string(shape[0]), "larger than 2^64"});
  }
  GgufBuilder large = sound();
  large.tensor("t", kF32, {(uint64_t{1} << 42) + 1}, counting_bytes(64));
  expect_refused(large.build(), {"tensor 't' needs 17592186044420 bytes"});
}

TEST(GgufFileRefuses, UnknownTensorTypes) {
  GgufBuilder negative = sound();
  negative.tensor("t", 0xFFFFFFFFu, {4}, counting_bytes(16));
  expect_refused(negative.build(), {"tensor 't' has type 4294967295"});
  GgufBuilder other = sound();
  other.tensor("t", 23, {256}, counting_bytes(136));
  expect_refused(other.build(), {"tensor 't' has type 23 (IQ4_XS)"});
}

TEST(GgufFileRefuses, BadOffsets) {
  const auto with_offset = [](uint64_t offset) {
    GgufBuilder builder = sound();
    builder.tensor("t", kF32, {8}, counting_bytes(32), offset);
    return builder.build();
  };
  ASSERT_TRUE(GgufFile::parse(with_offset(160), "m").ok());
  expect_refused(with_offset(161), {"tensor 't' is at offset 161", "alignment 32"});
  expect_refused(with_offset(192), {"tensor 't' needs 32 bytes at offset 192"});
  expect_refused(with_offset(kHuge), {"tensor 't'", std::to_string(kHuge)});
  expect_refused(with_offset(UINT64_MAX - 31), {"tensor 't'", "18446744073709551584"});
  expect_refused(with_offset(0), {"overlaps", "'t'", "'a'"});
  expect_refused(with_offset(64), {"'b' (102 bytes at offset 32) overlaps tensor 't' at offset 64"});
}

TEST(GgufFileRefuses, FloatsThatAreMisaligned) {
  GgufBuilder builder;
  builder.alignment = 1;
  builder.u32("general.alignment", 1);
  builder.tensor("t", kF32, {4}, counting_bytes(17), 1);
  const std::vector<std::byte> odd = builder.build();
  GgufBuilder shifted;
  shifted.alignment = 1;
  shifted.u32("general.alignment", 1);
  shifted.tensor("tt", kF32, {4}, counting_bytes(17), 1);
  // The names differ by one byte, so at most one of the two can be aligned.
  const bool first = GgufFile::parse(odd, "m").ok();
  const bool second = GgufFile::parse(shifted.build(), "m").ok();
  EXPECT_FALSE(first && second);
  expect_refused(first ? shifted.build() : odd, {"begins at byte", "multiple of 4", "F32"});
}

TEST(GgufFileRefuses, OneOfSeveralFilesInMemory) {
  GgufBuilder builder = sound();
  builder.u16("split.count", 3);
  expect_refused(builder.build(), {"'split.count' is 3"});
}

}  // namespace
}  // namespace kvasir
