#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "engine/eagle_file.h"
#include "engine/medusa_file.h"
#include "models/heads_rig.h"
#include "safetensors/safetensors_writer.h"

namespace kvasir {

// A file that is put together tensor by tensor; every value of a float tensor is 0.25, but perhaps
// the last.
class HeadFileRig : public HeadsRig, public testing::Test {
 protected:
  static constexpr uint64_t kWidth = 32;

  HeadFileRig() : HeadsRig(1) {
    folder_ = std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  ~HeadFileRig() override { std::filesystem::remove_all(folder_); }

  void add(const std::string& name, std::vector<uint64_t> shape, float last = 0.25f) {
    uint64_t count = 1;
    for (const uint64_t n : shape) count *= n;
    std::vector<float> values(count, 0.25f);
    values.back() = last;
    const auto bytes = std::as_bytes(std::span(values));
    drop(name);
    tensors_.push_back({{name, find_safe_type("F32"), std::move(shape)}, {bytes.begin(), bytes.end()}});
  }
  void add_integers(const std::string& name, const std::vector<int64_t>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    drop(name);
    tensors_.push_back({{name, find_safe_type("I64"), {values.size()}}, {bytes.begin(), bytes.end()}});
  }
  void drop(const std::string& name) {
    std::erase_if(tensors_, [&](const Tensor& t) { return t.entry.name == name; });
  }
  std::string write(const std::map<std::string, std::string>& metadata = {}) {
    const std::string path = (folder_ / "model.safetensors").string();
    std::vector<SafetensorsWriter::Entry> entries;
    for (const Tensor& t : tensors_) entries.push_back(t.entry);
    auto writer = SafetensorsWriter::create(path, entries, metadata);
    EXPECT_TRUE(writer.ok()) << writer.message();
    for (const Tensor& t : tensors_) EXPECT_TRUE(writer->append(t.bytes).ok());
    EXPECT_TRUE(writer->finish().ok());
    return path;
  }
  void write_config(const std::string& text) { std::ofstream(folder_ / "config.json") << text; }
  std::string folder() const { return folder_.string(); }

  void add_medusa(const std::string& prefix = "") {
    for (int head = 0; head < 2; ++head) {
      const std::string block = prefix + "blocks." + std::to_string(head) + ".layers.0.";
      add(block + "weight", {kWidth, kWidth});
      add(block + "bias", {kWidth});
    }
  }
  void add_layer(const std::string& layer, uint64_t inputs) {
    add(layer + "self_attn.q_proj.weight", {32, inputs});
    add(layer + "self_attn.k_proj.weight", {16, inputs});
    add(layer + "self_attn.v_proj.weight", {16, inputs});
    add(layer + "self_attn.o_proj.weight", {kWidth, 32});
    add(layer + "mlp.gate_proj.weight", {64, kWidth});
    add(layer + "mlp.up_proj.weight", {64, kWidth});
    add(layer + "mlp.down_proj.weight", {kWidth, 64});
    add(layer + "post_attention_layernorm.weight", {kWidth});
  }
  void add_eagle3() {
    add_layer("midlayer.", 2 * kWidth);
    add("fc.weight", {kWidth, 3 * kWidth});
    for (const char* name : {"midlayer.input_layernorm.weight", "midlayer.hidden_norm.weight", "norm.weight"})
      add(name, {kWidth});
  }

  std::string medusa_error() {
    const auto loaded = load_medusa(write(), *target, 0);
    return loaded.ok() ? "" : loaded.message();
  }
  std::string eagle_error(const std::map<std::string, std::string>& metadata = {}) {
    const auto loaded = load_eagle(write(metadata), *target, 0);
    return loaded.ok() ? "" : loaded.message();
  }

 private:
  struct Tensor {
    SafetensorsWriter::Entry entry;
    std::vector<std::byte> bytes;
  };
  std::filesystem::path folder_;
  std::vector<Tensor> tensors_;
};

}  // namespace kvasir
