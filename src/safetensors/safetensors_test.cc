#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "safetensors/safetensors_file.h"
#include "safetensors/safetensors_writer.h"

namespace kvasir {
namespace {

std::vector<std::byte> file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::vector<std::byte> bytes(sizeof(length) + header.size() + data_bytes);
  std::memcpy(bytes.data(), &length, sizeof(length));
  std::memcpy(bytes.data() + sizeof(length), header.data(), header.size());
  for (size_t i = 0; i < data_bytes; ++i)
    bytes[sizeof(length) + header.size() + i] = static_cast<std::byte>(i);
  return bytes;
}

std::string message_of(const std::string& header, size_t data_bytes) {
  const auto bytes = file_of(header, data_bytes);
  const auto file = SafetensorsFile::parse(bytes, "x");
  return file.ok() ? "" : file.message();
}

TEST(Safetensors, ReadsWhatTheHeaderSays) {
  const auto bytes =
      file_of(R"({"__metadata__":{"kind":"medusa"},"b":{"dtype":"F16","shape":[2,1],"data_offsets":[4,8]},)"
              R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
              8);
  const auto file = SafetensorsFile::parse(bytes, "x");
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ(file->metadata().at("kind"), "medusa");
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->tensors()[0].name, "a");  // as they lie in the file
  const SafeTensor* b = file->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->type->name, "F16");
  EXPECT_EQ(b->shape, (std::vector<uint64_t>{2, 1}));
  EXPECT_EQ(b->elements(), 2u);
  EXPECT_EQ(b->bytes[0], std::byte{4});
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST(Safetensors, DecodesValues) {
  // 1.0 as F32 is 3F800000, as F16 3C00, as BF16 3F80; -2 as I64.
  std::string header = R"({"f":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                       R"("h":{"dtype":"F16","shape":[1],"data_offsets":[4,6]},)"
                       R"("b":{"dtype":"BF16","shape":[1],"data_offsets":[6,8]},)"
                       R"("i":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}})";
  auto bytes = file_of(header, 16);
  std::byte* data = bytes.data() + bytes.size() - 16;
  const float one = 1.0f;
  const uint16_t half = 0x3C00, brain = 0x3F80;
  const int64_t two = -2;
  std::memcpy(data, &one, 4);
  std::memcpy(data + 4, &half, 2);
  std::memcpy(data + 6, &brain, 2);
  std::memcpy(data + 8, &two, 8);
  const auto file = SafetensorsFile::parse(bytes, "x");
  ASSERT_TRUE(file.ok()) << file.message();
  for (const char* name : {"f", "h", "b"})
    EXPECT_EQ(float_values(*file->find(name)).value(), std::vector<float>{1.0f}) << name;
  EXPECT_EQ(integer_values(*file->find("i")).value(), std::vector<int64_t>{-2});
  EXPECT_EQ(float_values(*file->find("i")).status().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(integer_values(*file->find("f")).status().code(), ErrorCode::kUnsupported);
}

TEST(Safetensors, RefusesWhatDoesNotFit) {
  const auto one = [](const std::string& entry) { return "{\"a\":" + entry + "}"; };
  EXPECT_EQ(message_of(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), 8), "");
  EXPECT_NE(message_of(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), 8).find("8 bytes"),
            std::string::npos);
  EXPECT_NE(message_of(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), 4).find("0 to 8 of 4"),
            std::string::npos);
  EXPECT_NE(message_of(one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), 8), "");
  EXPECT_NE(message_of(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), 12).find("8 of 12"),
            std::string::npos);
  EXPECT_NE(message_of(one(R"({"dtype":"Q4","shape":[2],"data_offsets":[0,8]})"), 8).find("Q4"),
            std::string::npos);
  EXPECT_NE(message_of(one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), 8), "");
  // 2^62 * 4 values of 4 bytes would be 0 bytes in 64 bits.
  EXPECT_NE(message_of(one(R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]})"), 0),
            "");
  EXPECT_NE(message_of(one("7"), 0), "");
  EXPECT_NE(message_of("[]", 0).find("no JSON object"), std::string::npos);
  EXPECT_NE(message_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                       6)
                .find("'b'"),
            std::string::npos);
}

TEST(Safetensors, RefusesAHeaderLongerThanTheFile) {
  std::vector<std::byte> bytes(16);
  const uint64_t length = uint64_t{1} << 40;
  std::memcpy(bytes.data(), &length, sizeof(length));
  EXPECT_NE(SafetensorsFile::parse(bytes, "x").message().find("1099511627776"), std::string::npos);
  EXPECT_FALSE(SafetensorsFile::parse(std::span(bytes).first(7), "x").ok());
}

TEST(Safetensors, RefusesAHeaderThatTakesSecondsToParse) {
  EXPECT_NE(message_of("{\"a\":\"" + std::string(size_t{17} << 20, 'x') + "\"}", 0).find("at most 16777216"),
            std::string::npos);
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const std::string path = testing::TempDir() + "written.safetensors";
  const std::vector<int32_t> tokens = {5, 6, 7};
  const std::vector<float> values = {0.5f, -1.0f};
  auto writer = SafetensorsWriter::create(
      path, {{"tokens", find_safe_type("I32"), {3}}, {"values", find_safe_type("F32"), {2, 1}}},
      {{"model", "abc"}});
  ASSERT_TRUE(writer.ok()) << writer.message();
  ASSERT_TRUE(writer->append_values(std::span<const int32_t>(tokens)).ok());
  ASSERT_TRUE(writer->append_values(std::span<const float>(values)).ok());
  EXPECT_FALSE(std::filesystem::exists(path)) << "not before everything is written";
  ASSERT_TRUE(writer->finish().ok());
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ(integer_values(*file->find("tokens")).value(), (std::vector<int64_t>{5, 6, 7}));
  EXPECT_EQ(float_values(*file->find("values")).value(), values);
  EXPECT_EQ(file->find("values")->shape, (std::vector<uint64_t>{2, 1}));
  EXPECT_EQ(file->metadata().at("model"), "abc");
  std::filesystem::remove(path);
}

TEST(SafetensorsWriter, LeavesNothingWhereItDoesNotFinish) {
  const std::string path = testing::TempDir() + "unfinished.safetensors";
  {
    auto writer = SafetensorsWriter::create(path, {{"a", find_safe_type("U8"), {2}}}, {});
    ASSERT_TRUE(writer.ok());
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  EXPECT_EQ(SafetensorsWriter::create("/nowhere/x", {}, {}).status().code(), ErrorCode::kIo);
}

}  // namespace
}  // namespace kvasir
