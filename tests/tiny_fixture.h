#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/ids.h"
#include "gguf/gguf_file.h"

// The small models of every architecture, unpacked by the build from tests/data/tiny
// (tools/tiny/make_models.py).
namespace kvasir {

inline const std::vector<std::string>& tiny_names() {
  static const std::vector<std::string> kNames = {"llama-3",     "llama-biased",
                                                  "mistral",     "smollm3",
                                                  "granite",     "qwen2",
                                                  "qwen3",       "gemma",
                                                  "gemma2",      "gemma3",
                                                  "phi3-long",   "phi4-mini",
                                                  "olmo2",       "olmo3",
                                                  "stablelm",    "stablelm-parallel",
                                                  "command-r",   "command-r-plus",
                                                  "cohere2",     "mixtral",
                                                  "qwen2moe",    "qwen3moe",
                                                  "olmoe",       "granitemoe",
                                                  "gpt-oss",     "granitemoe-shared",
                                                  "youtu-llm",   "deepseek-v2-lite",
                                                  "deepseek-v2", "deepseek-v3",
                                                  "minicpm3",    "plm"};
  return kNames;
}

inline std::string tiny_path(const std::string& file) {
  return std::string(KVASIR_TINY_MODELS) + "/" + file;
}

inline GgufFile open_tiny(const std::string& name) {
  auto file = GgufFile::open(tiny_path(name + ".gguf"));
  EXPECT_TRUE(file.ok()) << file.message();
  return std::move(file).value();
}

// What transformers answers in f32: the logits of every position of a text.
struct TinyGolden {
  uint32_t vocab = 0;
  std::vector<TokenId> tokens;
  std::vector<float> logits;  // [tokens][vocab]

  explicit TinyGolden(const std::string& name) {
    std::ifstream in(tiny_path(name + ".golden"), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    EXPECT_EQ(bytes.substr(0, 8), "KVTINY01") << name;
    uint32_t head[2] = {};
    if (bytes.size() >= 16) bytes.copy(reinterpret_cast<char*>(head), 8, 8);
    vocab = head[1];
    const size_t count = head[0], values = count * vocab;
    EXPECT_EQ(bytes.size(), 16 + (count + values) * 4) << name;
    if (bytes.size() != 16 + (count + values) * 4) return;
    std::vector<uint32_t> ids(count);
    bytes.copy(reinterpret_cast<char*>(ids.data()), count * 4, 16);
    for (const uint32_t id : ids) tokens.push_back(static_cast<TokenId>(id));
    logits.resize(values);
    bytes.copy(reinterpret_cast<char*>(logits.data()), values * 4, 16 + count * 4);
  }
};

inline std::string tiny_test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
}

}  // namespace kvasir
