#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "kernels/table.h"
#include "models/causal_lm.h"

namespace kvasir {

// Where tools/fetch_models.py puts the real models.
inline std::string model_path(const std::string& file) {
  return std::string(KVASIR_SOURCE_DIR) + "/models/" + file;
}

// A model file's name as a test may bear it.
inline std::string model_test_name(std::string file) {
  for (char& c : file)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return file;
}

// A real model with a pool of its own, driven without the engine: the test hands out block tables itself.
class LoadedModel {
 public:
  LoadedModel(const std::string& file, Isa isa, uint32_t threads, uint32_t block_size = 32,
              KvType kv_type = KvType::kF16)
      : LoadedModel(open(file), isa, threads, block_size, kv_type) {}

  // `max_context` as of CausalLm::Limits.
  LoadedModel(const GgufFile& gguf, Isa isa, uint32_t threads, uint32_t block_size, KvType kv_type,
              uint32_t max_context = 0)
      : LoadedModel(gguf, kernel_table(isa), threads, block_size, kv_type, max_context) {}

  LoadedModel(const GgufFile& gguf, const KernelTable& kernels, uint32_t threads, uint32_t block_size,
              KvType kv_type, uint32_t max_context = 0)
      : pool_(threads), kernels_(kernels) {
    auto loaded = CausalLm::load(gguf, kernels_, pool_,
                                 {.max_rows = 512, .max_logit_rows = 512, .max_context = max_context});
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    model_ = std::move(loaded).value();
    const auto specs = model_->config().kv_layers();
    auto layout = KvLayout::make(specs, block_size, kv_type);
    EXPECT_TRUE(layout.ok());
    uint32_t units = 0;
    for (const KvLayout::Group& g : layout->groups()) units += g.units;
    store_ = std::make_unique<KvStore>(*layout, units * kEntries);
  }

  // A sequence with tables for kEntries * block_size tokens, from block ids that no other sequence has.
  struct Tables {
    std::vector<std::vector<BlockId>> ids;
    std::vector<const BlockId*> pointers;
  };
  Tables make_tables(uint32_t first_entry, uint32_t entries) const {
    Tables t;
    const auto& groups = store_->layout().groups();
    uint32_t base = 0;
    for (const KvLayout::Group& g : groups) {
      std::vector<BlockId> ids(static_cast<size_t>(entries) * g.units);
      for (uint32_t i = 0; i < ids.size(); ++i)
        ids[i] = BlockId{base * kEntries + first_entry * g.units + (entries * g.units - 1 - i)};
      base += g.units;
      t.ids.push_back(std::move(ids));
    }
    for (const auto& v : t.ids) t.pointers.push_back(v.data());
    return t;
  }

  // Puts the first `entries` entries of `table` where those of `of` are.
  void share_prefix(Tables& table, const Tables& of, uint32_t entries) const {
    for (size_t g = 0; g < of.ids.size(); ++g) {
      const size_t ids = size_t{entries} * store_->layout().groups()[g].units;
      std::copy_n(of.ids[g].begin(), ids, table.ids[g].begin());
    }
  }

  CausalLm& model() { return *model_; }
  KvStore& store() { return *store_; }
  uint32_t vocab() const { return model_->config().vocab_size; }

  static constexpr uint32_t kEntries = 96;

 private:
  static GgufFile open(const std::string& file) {
    auto gguf = GgufFile::open(model_path(file));
    EXPECT_TRUE(gguf.ok()) << gguf.status().message();
    return std::move(gguf).value();
  }

  ThreadPool pool_;
  const KernelTable& kernels_;
  std::unique_ptr<CausalLm> model_;
  std::unique_ptr<KvStore> store_;
};

}  // namespace kvasir
