#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "kernels/quant_codec.h"

namespace kvasir {

// Puts values into any storage format, for tests, by asking the decoder what each bit of a block means:
// integer scales are drawn at random, the block's own scale is set so that its largest value fits, and each
// value takes the code that decodes nearest to it. Far from the best choice of scales, but every field of a
// block is used.
class CrudeQuantizer {
 public:
  explicit CrudeQuantizer(DType type) : type_(type), info_(dtype_info(type)), layout_(layout_of(type)) {
    if (info_.block_elements == 1) return;
    learn_bits();
    for (Pattern& pattern : patterns_) {
      pattern.block = random_scales();
      pattern.values = tables(with_scale(pattern.block, 1.0f));
      for (const auto& table : pattern.values)
        for (const float v : table) pattern.reach = std::max(pattern.reach, std::fabs(v));
    }
  }

  // `values` is a whole number of blocks.
  std::vector<std::byte> operator()(std::span<const float> values) {
    std::vector<std::byte> out;
    for (size_t i = 0; i < values.size(); i += info_.block_elements) {
      const std::vector<std::byte> block = info_.block_elements > 1
                                               ? quantize_block(values.subspan(i, info_.block_elements))
                                               : narrow(values[i]);
      out.insert(out.end(), block.begin(), block.end());
    }
    return out;
  }

 private:
  // Where a block keeps its scales. `min_ratio`: the offset in units of the scale that centres the codes.
  struct Layout {
    int scale = 0;
    int min = -1;
    float min_ratio = 0;
    int small_begin = 0, small_end = 0;  // integer scales
  };

  static Layout layout_of(DType type) {
    switch (type) {
      case DType::kQ4_1:
        return {0, 2, -7.5f};
      case DType::kQ5_1:
        return {0, 2, -15.5f};
      case DType::kQ2_K:
        return {80, 82, 1.5f, 0, 16};
      case DType::kQ3_K:
        return {108, -1, 0, 96, 108};
      case DType::kQ4_K:
        return {0, 2, 7.5f, 4, 16};
      case DType::kQ5_K:
        return {0, 2, 15.5f, 4, 16};
      case DType::kQ6_K:
        return {208, -1, 0, 192, 208};
      default:
        return {};
    }
  }

  // Integer scales, and what each code of each value decodes to with a scale of one.
  struct Pattern {
    std::vector<std::byte> block;
    std::vector<std::vector<float>> values;  // [element][code]
    float reach = 0;                         // the largest of them, without its sign
  };

  bool is_code(size_t byte) const {
    const auto b = static_cast<int>(byte);
    if (type_ == DType::kMXFP4) return b > 0;
    const bool half = b / 2 * 2 == layout_.scale || (layout_.min >= 0 && b / 2 * 2 == layout_.min);
    return !half && !(b >= layout_.small_begin && b < layout_.small_end);
  }

  std::vector<float> decode(const std::vector<std::byte>& block) const {
    std::vector<float> values(info_.block_elements);
    dequantize(type_, block.data(), values.size(), values.data());
    return values;
  }

  static std::vector<std::byte> put_half(std::vector<std::byte> block, int at, float value) {
    const uint16_t half = float_to_half(value);
    std::memcpy(block.data() + at, &half, sizeof half);
    return block;
  }

  // A block of code 0 everywhere with this scale.
  std::vector<std::byte> with_scale(std::vector<std::byte> block, float scale) const {
    if (type_ == DType::kMXFP4) {
      block[0] = static_cast<std::byte>(std::clamp(std::ceil(std::log2(scale)) + 127.0f, 1.0f, 254.0f));
      return block;
    }
    block = put_half(std::move(block), layout_.scale, scale);
    return layout_.min < 0 ? block : put_half(std::move(block), layout_.min, scale * layout_.min_ratio);
  }

  float scale_of(const std::vector<std::byte>& block) const {
    if (type_ == DType::kMXFP4) return std::ldexp(1.0f, static_cast<int>(block[0]) - 127);
    uint16_t half;
    std::memcpy(&half, block.data() + layout_.scale, sizeof half);
    return half_to_float(half);
  }

  std::vector<std::byte> random_scales() {
    std::vector<std::byte> block(info_.block_bytes);
    for (int b = layout_.small_begin; b < layout_.small_end; ++b) {
      uint8_t value = static_cast<uint8_t>(rng_());
      if (type_ == DType::kQ2_K) value = static_cast<uint8_t>((8 + value % 8) * 17);  // minimum as scale
      if (type_ == DType::kQ6_K) value = static_cast<uint8_t>((64 + value % 64) * (value & 128 ? -1 : 1));
      block[static_cast<size_t>(b)] = static_cast<std::byte>(value);
    }
    if (type_ == DType::kQ4_K || type_ == DType::kQ5_K) pack_pairs(&block);
    return block;
  }

  // Eight scales of six bits, each its own minimum, as Q4_K keeps them.
  void pack_pairs(std::vector<std::byte>* block) {
    for (size_t j = 0; j < 4; ++j) {
      const uint32_t low = 32 + rng_() % 32, high = 32 + rng_() % 32;
      (*block)[4 + j] = (*block)[8 + j] = static_cast<std::byte>(low | high >> 4 << 6);
      (*block)[12 + j] = static_cast<std::byte>((high & 15) * 17);
    }
  }

  // Which bits, lowest first, make up the code of each value.
  void learn_bits() {
    const auto zero = with_scale(random_scales(), 1.0f);
    const auto before = decode(zero);
    bits_.assign(info_.block_elements, {});
    for (size_t bit = 0; bit < zero.size() * 8; ++bit) {
      if (!is_code(bit / 8)) continue;
      auto block = zero;
      block[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      const auto after = decode(block);
      for (size_t i = 0; i < after.size(); ++i)
        if (after[i] != before[i]) bits_[i].push_back(bit);
    }
  }

  void set_code(std::vector<std::byte>* block, size_t element, uint32_t code) const {
    for (size_t b = 0; b < bits_[element].size(); ++b) {
      const size_t bit = bits_[element][b];
      const auto mask = static_cast<std::byte>(1 << bit % 8);
      (*block)[bit / 8] = code >> b & 1 ? (*block)[bit / 8] | mask : (*block)[bit / 8] & ~mask;
    }
  }

  // values_of[element][code] in the given block.
  std::vector<std::vector<float>> tables(const std::vector<std::byte>& scales) const {
    size_t most = 0;
    for (const auto& bits : bits_) most = std::max(most, bits.size());
    std::vector<std::vector<float>> out(bits_.size());
    for (uint32_t code = 0; code < (1u << most); ++code) {
      auto block = scales;
      for (size_t i = 0; i < bits_.size(); ++i)
        if (code < (1u << bits_[i].size())) set_code(&block, i, code);
      const auto values = decode(block);
      for (size_t i = 0; i < bits_.size(); ++i)
        if (code < (1u << bits_[i].size())) out[i].push_back(values[i]);
    }
    return out;
  }

  std::vector<std::byte> quantize_block(std::span<const float> x) {
    const Pattern& pattern = patterns_[rng_() % patterns_.size()];
    float largest = 1e-6f;
    for (const float v : x) largest = std::max(largest, std::fabs(v));
    auto block = with_scale(pattern.block, largest / pattern.reach);
    const float scale = scale_of(block);
    for (size_t i = 0; i < x.size(); ++i) {
      const auto nearer = [&](float a, float b) {
        return std::fabs(a * scale - x[i]) < std::fabs(b * scale - x[i]);
      };
      const auto& values = pattern.values[i];
      const auto best = std::min_element(values.begin(), values.end(), nearer);
      set_code(&block, i, static_cast<uint32_t>(best - values.begin()));
    }
    return block;
  }

  std::vector<std::byte> narrow(float value) const {
    std::vector<std::byte> out(info_.block_bytes);
    const uint16_t half = float_to_half(value);
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const auto upper = static_cast<uint16_t>(bits >> 16);
    if (type_ == DType::kF32) std::memcpy(out.data(), &value, sizeof value);
    if (type_ == DType::kF16) std::memcpy(out.data(), &half, sizeof half);
    if (type_ == DType::kBF16) std::memcpy(out.data(), &upper, sizeof upper);
    return out;
  }

  DType type_;
  const DTypeInfo& info_;
  Layout layout_;
  std::vector<std::vector<size_t>> bits_;
  std::array<Pattern, 8> patterns_;
  std::mt19937 rng_{7};
};

}  // namespace kvasir
