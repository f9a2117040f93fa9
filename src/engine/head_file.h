#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/head_config.h"
#include "gguf/gguf_file.h"
#include "safetensors/safetensors_file.h"

namespace kvasir {

// A tensor of a draft head, whatever file it is from: row-major, under the name that safetensors files have
// for it. Values are decoded when they are asked for; kUnsupported names a type that is not read.
struct HeadTensor {
  std::string name;
  std::string label;  // its name in the file, for errors
  std::vector<uint64_t> shape;
  std::function<Result<std::vector<float>>(uint64_t first, uint64_t count)> floats;  // count > 0
  std::function<Result<std::vector<int64_t>>()> integers;

  uint64_t elements() const;
};

// A file with a draft head, opened and its directory read:
//   safetensors  "FILE", or a folder with model.safetensors or medusa_lm_head.safetensors
//   GGUF         architecture eagle3 as llama.cpp writes it (src/models/eagle3.cpp and conversion/llama.py
//                there): fc, enc.output_norm, blk.0.*, output_norm, output, token_embd, rope_freqs and d2t.
//                Rows of q and k stand there in the order that turns neighbouring values; they are put back
//                into the order of safetensors files, and d2t, whole ids there, into offsets.
class HeadFile {
 public:
  static Result<HeadFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  bool is_gguf() const { return gguf_ != nullptr; }
  const HeadConfig& config() const { return config_; }
  const std::vector<HeadTensor>& tensors() const { return tensors_; }
  const HeadTensor* find(std::string_view name) const;  // nullptr: there is none

 private:
  static Result<HeadFile> open_safetensors(const std::string& path);
  static Result<HeadFile> open_gguf(const std::string& path);
  Status add_gguf_tensors();
  Status add_gguf_matrix(const TensorInfo& tensor, const std::string& name);

  std::string path_;
  std::unique_ptr<SafetensorsFile> safetensors_;
  std::unique_ptr<GgufFile> gguf_;
  HeadConfig config_;
  std::vector<HeadTensor> tensors_;
};

}  // namespace kvasir
