#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf_builder.h"

namespace kvasir {

// Makes GGUF files of a llama with one layer of width 32, right ones and wrong ones. For tests.
struct TinyModel {
  uint32_t tokens = 20;      // of the tokenizer; 0: the file has none
  uint32_t rows = 20;        // of token_embd.weight, and of output.weight
  bool own_head = false;     // output.weight exists
  std::string without = "";  // the tensor that is left out
  uint32_t context = 64;
  bool noisy = false;  // values like those of a real model: small, of both signs

  std::vector<std::byte> bytes() const {
    GgufBuilder file;
    file.string("general.architecture", "llama").string("general.name", "Tiny");
    file.u32("llama.block_count", 1).u32("llama.context_length", context);
    file.u32("llama.embedding_length", kWidth).u32("llama.feed_forward_length", kWidth);
    file.u32("llama.attention.head_count", 2).u32("llama.attention.head_count_kv", 1);
    if (tokens > 0) {
      std::vector<std::string> texts;
      for (uint32_t t = 0; t < tokens; ++t) texts.push_back("t" + std::to_string(t));
      file.string("tokenizer.ggml.model", "gpt2").strings("tokenizer.ggml.tokens", texts);
    }
    add(file, "token_embd.weight", {kWidth, rows});
    if (own_head) add(file, "output.weight", {kWidth, rows});
    add(file, "output_norm.weight", {kWidth});
    for (const char* name : {"attn_norm", "ffn_norm"}) add(file, in_layer(name), {kWidth});
    for (const char* name : {"attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
      add(file, in_layer(name), {kWidth, kWidth});
    for (const char* name : {"attn_k", "attn_v"}) add(file, in_layer(name), {kWidth, kWidth / 2});
    return file.build();
  }

 private:
  static constexpr uint32_t kWidth = 32;

  static std::string in_layer(const char* name) { return std::string("blk.0.") + name + ".weight"; }

  // From -0.5 to 0.5.
  static float noise(std::string_view name, uint64_t i) {
    uint64_t x = i * 0x9E3779B97F4A7C15ull + 1;
    for (const char c : name) x = (x ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
    x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9ull;
    return static_cast<float>(x >> 40) * 0x1p-24f - 0.5f;
  }

  // F32 values that differ from tensor to tensor; those of fewer rows are the first of those of more.
  void add(GgufBuilder& file, std::string_view name, const std::vector<uint64_t>& dims) const {
    if (name == without) return;
    uint64_t count = 1;
    for (const uint64_t dim : dims) count *= dim;
    std::vector<std::byte> values(count * sizeof(float));
    for (uint64_t i = 0; i < count; ++i) {
      const float value =
          noisy ? noise(name, i) : static_cast<float>(name.size()) + static_cast<float>(i) / 1024.0f;
      std::memcpy(values.data() + i * sizeof(float), &value, sizeof(float));
    }
    file.tensor(name, 0, dims, values);
  }
};

}  // namespace kvasir
