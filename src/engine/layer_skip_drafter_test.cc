// The target's own layers as a drafter: answers are those without it, and nothing of what it writes is seen.

#include "engine/layer_skip_drafter.h"

#include <gtest/gtest.h>

#include "engine/core_rig.h"

namespace kvasir {
namespace {

DrafterStats run(RigOptions options, const std::vector<uint32_t>& layers,
                 const std::vector<Request>& requests) {
  options.speculation.always = true;
  options.own_drafter = [&](CausalLm& model, ThreadPool& threads) {
    const DraftBatch::Options batch = {.limits = {.max_rows = options.max_num_batched_tokens,
                                                  .max_logit_rows = options.max_num_batched_tokens},
                                       .vocab = options.model.vocab,
                                       .head_tokens = 0,
                                       .layers = layers};
    return std::make_unique<LayerSkipDrafter>(model, threads, batch, std::vector<TokenId>{0});
  };
  CoreRig rig(options);
  std::vector<uint64_t> ids;
  for (const Request& r : requests) ids.push_back(rig.add(r));
  rig.run();
  for (size_t i = 0; i < requests.size(); ++i) rig.expect_right(ids[i], requests[i]);
  return rig.core->update_stats().speculation.drafters[0];
}

TEST(LayerSkip, AnswersDoNotDependOnTheLayers) {
  for (int kind = 0; kind < 3; ++kind) {
    std::mt19937 rng(static_cast<uint32_t>(kind) + 90);
    std::vector<Request> requests;
    for (int i = 0; i < 14; ++i) requests.push_back(random_request(rng, 120));
    RigOptions options;
    options.model.windows = kinds_of_model(kind);
    const auto layers = static_cast<uint32_t>(options.model.windows.size());
    for (const uint32_t most : {1u, 3u, 8u}) {
      for (const std::vector<uint32_t>& chosen : {std::vector<uint32_t>{0}, {layers - 1}, {0, layers - 1}}) {
        SCOPED_TRACE(testing::Message() << "kind " << kind << ", " << most << " guesses, layer "
                                        << chosen.front() << " to " << chosen.back());
        options.speculation.most = most;
        options.max_num_batched_tokens = most == 3 ? 17 : 64;
        options.blocks = 600;
        EXPECT_GT(run(options, chosen, requests).drafts, 0u);
        options.max_model_len = 170;
        options.blocks =
            KvLayout::make(FakeLm(options.model).config().kv_layers(), 16).value().blocks_for(170) + 3;
        run(options, chosen, requests);
        options.max_model_len = 512;
      }
    }
  }
}

TEST(LayerSkip, AllLayersAreAlwaysRight) {
  RigOptions options;
  options.speculation.most = 4;
  for (const float temperature : {0.0f, 0.9f}) {
    Request r = fake_request(fake_prompt(40, 1), 101, temperature);
    r.sampling.ignore_eos = true;
    const DrafterStats stats = run(options, {0, 1}, {r});
    EXPECT_EQ(stats.accepted, 80u) << "temperature " << temperature;
    EXPECT_EQ(stats.drafted, 80u);
  }
}

TEST(LayerSkip, ReadsWhichLayersAreMeant) {
  EXPECT_EQ(parse_layers("3", 6).value(), (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(parse_layers("6", 6).value(), (std::vector<uint32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(parse_layers("0-1+4-5", 6).value(), (std::vector<uint32_t>{0, 1, 4, 5}));
  EXPECT_EQ(parse_layers("5+0", 6).value(), (std::vector<uint32_t>{0, 5}));
  for (const char* wrong : {"0", "7", "", "-", "1-", "4-2", "0-6", "0+", "a", "1-2-3", "-1", "99999999999"}) {
    const auto layers = parse_layers(wrong, 6);
    ASSERT_FALSE(layers.ok()) << wrong;
    EXPECT_NE(layers.message().find("layers="), std::string::npos);
  }
}

}  // namespace
}  // namespace kvasir
