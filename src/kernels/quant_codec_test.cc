#include "kernels/quant_codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

namespace kvasir {
namespace {

// One file of tests/data/quants, written by tools/make_gguf_fixtures.py: block count, blocks, the gguf
// package's values.
struct Fixture {
  std::vector<std::byte> blocks;
  std::vector<float> values;
};

Fixture read_fixture(const DTypeInfo& info) {
  const std::string path =
      std::string(KVASIR_SOURCE_DIR) + "/tests/data/quants/" + std::string(info.name) + ".bin";
  std::ifstream file(path, std::ios::binary);
  const std::string data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Fixture fixture;
  uint32_t count = 0;
  if (data.size() < sizeof count) return fixture;
  std::memcpy(&count, data.data(), sizeof count);
  const size_t block_bytes = size_t{count} * info.block_bytes;
  const size_t elements = size_t{count} * info.block_elements;
  if (data.size() != sizeof count + block_bytes + elements * sizeof(float)) return fixture;
  fixture.blocks.resize(block_bytes);
  std::memcpy(fixture.blocks.data(), data.data() + sizeof count, block_bytes);
  fixture.values.resize(elements);
  std::memcpy(fixture.values.data(), data.data() + sizeof count + block_bytes, elements * sizeof(float));
  return fixture;
}

// The bits of a value. A NaN that an operation makes, here of zero times infinity, has its sign bit set on
// x86, where the fixtures were made, and clear on AArch64: both are one.
uint32_t bits_of(float f) {
  const auto bits = std::bit_cast<uint32_t>(f);
  return bits == 0x7FC00000 ? 0xFFC00000 : bits;
}

class QuantCodec : public testing::TestWithParam<DTypeInfo> {};

TEST_P(QuantCodec, EqualsTheGgufPackageToTheBit) {
  const Fixture fixture = read_fixture(GetParam());
  ASSERT_GE(fixture.values.size(), 64u) << "fixture missing or of the wrong size";
  std::vector<float> got(fixture.values.size(), -1.0f);
  dequantize(GetParam().type, fixture.blocks.data(), got.size(), got.data());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(bits_of(got[i]), bits_of(fixture.values[i]))
        << "value " << i % GetParam().block_elements << " of block " << i / GetParam().block_elements << ": "
        << got[i] << " instead of " << fixture.values[i];
}

TEST_P(QuantCodec, BlocksAreIndependentAndMayBeUnaligned) {
  const Fixture fixture = read_fixture(GetParam());
  ASSERT_FALSE(fixture.values.empty());
  const DTypeInfo& info = GetParam();
  const size_t blocks = fixture.values.size() / info.block_elements;
  std::vector<std::byte> shifted(info.block_bytes + 1);
  std::vector<float> got(info.block_elements);
  for (size_t b = 0; b < blocks; ++b) {
    std::memcpy(shifted.data() + 1, fixture.blocks.data() + b * info.block_bytes, info.block_bytes);
    dequantize(info.type, shifted.data() + 1, got.size(), got.data());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(bits_of(got[i]), bits_of(fixture.values[b * info.block_elements + i])) << "block " << b;
  }
}

TEST_P(QuantCodec, NoElementsTouchNothing) {
  dequantize(GetParam().type, nullptr, 0, nullptr);
}

std::vector<DTypeInfo> every_type() {
  return {dtype_table().begin(), dtype_table().end()};
}

INSTANTIATE_TEST_SUITE_P(Types, QuantCodec, testing::ValuesIn(every_type()),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(HalfFloat, EveryHalfHasItsValue) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float got = half_to_float(static_cast<uint16_t>(h));
    const int exponent = static_cast<int>(h >> 10 & 31);
    const int mantissa = static_cast<int>(h & 1023);
    ASSERT_EQ(std::signbit(got), (h & 0x8000) != 0) << h;
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(got), mantissa != 0) << h;
      ASSERT_EQ(std::isinf(got), mantissa == 0) << h;
      continue;
    }
    const double want =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(std::fabs(got), want) << h;
  }
}

TEST(HalfFloat, RoundTripsEveryHalf) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const uint16_t back = float_to_half(half_to_float(static_cast<uint16_t>(h)));
    const bool nan = (h & 0x7FFF) > 0x7C00;
    ASSERT_EQ(back, nan ? (h | 0x0200) : h) << h;
  }
}

TEST(HalfFloat, RoundsToNearestAndTiesToEven) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (uint32_t h = 0; h < 0x7C00; ++h) {
    const float low = half_to_float(static_cast<uint16_t>(h));
    // Above the largest half the next step would be 2^16, where infinity begins.
    const float high = h == 0x7BFF ? 65536.0f : half_to_float(static_cast<uint16_t>(h + 1));
    const float middle = low + (high - low) / 2;
    const uint32_t even = h % 2 == 0 ? h : h + 1;
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float s = sign != 0 ? -1.0f : 1.0f;
      ASSERT_EQ(float_to_half(s * middle), sign | even) << h;
      ASSERT_EQ(float_to_half(s * std::nextafter(middle, infinity)), sign | (h + 1)) << h;
      ASSERT_EQ(float_to_half(s * std::nextafter(middle, 0.0f)), sign | h) << h;
    }
  }
}

TEST(HalfFloat, LargeAndSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(float_to_half(1e30f), 0x7C00);
  EXPECT_EQ(float_to_half(-1e30f), 0xFC00);
  EXPECT_EQ(float_to_half(infinity), 0x7C00);
  EXPECT_EQ(float_to_half(-infinity), 0xFC00);
  EXPECT_EQ(float_to_half(-0.0f), 0x8000);
  EXPECT_EQ(float_to_half(1e-40f), 0x0000);
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half(std::bit_cast<float>(0x7F800001u)))));
  EXPECT_EQ(float_to_half(std::bit_cast<float>(0xFFC02000u)), 0xFE01);
}

TEST(Bf16, IsTheUpperHalfOfAFloat) {
  for (uint32_t b = 0; b < 0x10000; ++b)
    ASSERT_EQ(std::bit_cast<uint32_t>(bf16_to_float(static_cast<uint16_t>(b))), b << 16);
}

}  // namespace
}  // namespace kvasir
