#include "kvcache/kv_layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <tuple>

#include "kvcache/kv_store.h"

namespace kvasir {
namespace {

TEST(KvLayout, ModelWithoutWindowsIsOneGroupOfOneUnit) {
  const std::vector<KvLayerSpec> layers(30, {3, 64, 0});
  const KvLayout layout = KvLayout::make(layers, 32).value();
  ASSERT_EQ(layout.groups().size(), 1u);
  EXPECT_EQ(layout.units(), 1u);
  EXPECT_EQ(layout.bytes_per_token(), 30u * 2 * 3 * 64 * 2);
  EXPECT_EQ(layout.block_bytes(), layout.bytes_per_token() * 32);
  EXPECT_EQ(layout.blocks_for(0), 0u);
  EXPECT_EQ(layout.blocks_for(1), 1u);
  EXPECT_EQ(layout.blocks_for(32), 1u);
  EXPECT_EQ(layout.blocks_for(33), 2u);
}

// DeepSeek-V2-Lite: a latent of 512 and a rotated key of 64 in each of 27 layers, and no V.
TEST(KvLayout, LatentRowsHaveOnePlane) {
  const std::vector<KvLayerSpec> layers(27, {.kv_heads = 1, .head_dim = 576, .window = 0, .latent = 512});
  const KvLayout layout = KvLayout::make(layers, 32).value();
  EXPECT_EQ(layout.bytes_per_token(), 31'104u);
  EXPECT_EQ(layout.layer(1).offset_bytes, 32u * 576 * 2);
  EXPECT_EQ(layout.layer(1).latent, 512u);
  const KvLayout bytes = KvLayout::make(layers, 32, KvType::kInt8).value();
  EXPECT_EQ(bytes.bytes_per_token(), 27u * (576 + 2 * 4));
  const std::vector<KvLayerSpec> two_heads(27, {.kv_heads = 2, .head_dim = 576, .window = 0, .latent = 512});
  EXPECT_EQ(KvLayout::make(two_heads, 32).status().code(), ErrorCode::kInvalidArgument);
}

// Gemma 3 270M: every sixth of 18 layers is global, the others see 512 positions.
TEST(KvLayout, WindowLayersAreDealtOutInUnitsOfEqualSize) {
  std::vector<KvLayerSpec> layers;
  for (int i = 0; i < 18; ++i) layers.push_back({1, 256, i % 6 == 5 ? 0u : 512u});
  const KvLayout layout = KvLayout::make(layers, 32).value();
  ASSERT_EQ(layout.groups().size(), 2u);
  EXPECT_EQ(layout.groups()[0].window, 512u);
  EXPECT_EQ(layout.groups()[0].units, 5u);
  EXPECT_EQ(layout.groups()[1].units, 1u);
  EXPECT_EQ(layout.bytes_per_token(), 18u * 2 * 256 * 2);

  std::set<std::tuple<uint32_t, uint32_t, size_t>> places;
  for (uint32_t i = 0; i < layout.layer_count(); ++i) {
    const KvLayout::Layer& layer = layout.layer(i);
    EXPECT_LT(layer.unit, layout.groups()[layer.group].units);
    EXPECT_LT(layer.offset_bytes, layout.block_bytes());
    EXPECT_EQ(layer.offset_bytes % 64, 0u);
    EXPECT_EQ(layout.groups()[layer.group].window, layers[i].window);
    EXPECT_TRUE(places.insert({layer.group, layer.unit, layer.offset_bytes}).second);
  }
  // A full window touches at most 17 blocks of 32; the global group grows for ever.
  EXPECT_EQ(layout.blocks_for(512), 16u * 6);
  EXPECT_EQ(layout.blocks_for(32000), 17u * 5 + 1000);
}

TEST(KvLayout, BoundOfAWindowHoldsWhereverItStarts) {
  for (const uint32_t window : {1u, 2u, 15u, 16u, 17u, 33u, 100u}) {
    const std::vector<KvLayerSpec> layers = {{1, 8, window}};
    const KvLayout layout = KvLayout::make(layers, 16).value();
    uint32_t most = 0;
    for (uint32_t p = 0; p < 400; ++p) {
      most = std::max(most, p / 16 - first_visible(window, p) / 16 + 1);
      ASSERT_LE(most, layout.blocks_for(p + 1)) << window << " at " << p;
    }
    EXPECT_EQ(most, layout.blocks_for(400)) << window;
  }
}

TEST(KvLayout, Int8KeepsAByteAValueAndTwoScalesAHead) {
  const std::vector<KvLayerSpec> layers(30, {3, 64, 0});
  const KvLayout layout = KvLayout::make(layers, 32, KvType::kInt8).value();
  EXPECT_EQ(layout.type(), KvType::kInt8);
  EXPECT_EQ(layout.bytes_per_token(), 30u * 3 * (2 * 64 + 2 * sizeof(float)));
  EXPECT_EQ(layout.layer(1).plane_bytes, 32u * 3 * 64);
  EXPECT_EQ(layout.layer(1).offset_bytes, 32u * 3 * (2 * 64 + 2 * sizeof(float)));
  for (uint32_t i = 0; i < 30; ++i) EXPECT_EQ(layout.layer(i).offset_bytes % 64, 0u);
}

TEST(KvLayout, RefusesWhatMakesNoSense) {
  const std::vector<KvLayerSpec> good = {{1, 64, 0}};
  EXPECT_FALSE(KvLayout::make({}, 16).ok());
  EXPECT_FALSE(KvLayout::make(good, 0).ok());
  EXPECT_FALSE(KvLayout::make(good, 24).ok());
  EXPECT_FALSE(KvLayout::make(std::vector<KvLayerSpec>{{0, 64, 0}}, 16).ok());
  EXPECT_FALSE(KvLayout::make(std::vector<KvLayerSpec>{{UINT32_MAX, UINT32_MAX, 0}}, 16).ok());
  EXPECT_FALSE(KvLayout::make(std::vector<KvLayerSpec>(4000, {1u << 14, 1u << 14, 0}), 16).ok());
  const Result<KvLayout> mixed = KvLayout::make(std::vector<KvLayerSpec>{{1, 64, 0}, {2, 64, 0}}, 16);
  ASSERT_FALSE(mixed.ok());
  EXPECT_EQ(mixed.status().code(), ErrorCode::kUnsupported);
}

TEST(KvStore, BlocksAreApartAndCopyWhole) {
  const std::vector<KvLayerSpec> layers = {{1, 8, 0}, {1, 8, 0}};
  KvStore store(KvLayout::make(layers, 16).value(), 3);
  const size_t bytes = store.layout().block_bytes();
  EXPECT_EQ(store.block(BlockId{2}) - store.block(BlockId{0}), static_cast<ptrdiff_t>(2 * bytes));
  for (size_t i = 0; i < bytes; ++i) store.block(BlockId{0})[i] = static_cast<std::byte>(i);
  store.copy_block(BlockId{0}, BlockId{2});
  EXPECT_EQ(std::memcmp(store.block(BlockId{0}), store.block(BlockId{2}), bytes), 0);
  EXPECT_EQ(store.block(BlockId{1})[bytes - 1], std::byte{0});
}

}  // namespace
}  // namespace kvasir
