#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/metadata.h"
#include "models/rope_frequencies.h"
#include "safetensors/safetensors_file.h"

namespace kvasir {

// The numbers of a head's configuration, under the names that Hugging Face models give them: of config.json
// beside a safetensors file, with the objects in it opened ("eagle_config", "transformer_layer_config",
// "rope_scaling"), else of the file's own metadata; or of a GGUF file of architecture eagle3. Where a
// config.json or a GGUF file says nothing of rope_theta, rms_norm_eps and head_dim, they are 10000, 1e-6 and
// hidden_size / num_attention_heads.
class HeadConfig {
 public:
  // `file`: the safetensors file. kCorrupt where there is a config.json that is no JSON object.
  static Result<HeadConfig> read(const SafetensorsFile& file);
  // Of llama.cpp's keys of architecture eagle3. Errors name the key.
  static Result<HeadConfig> read(const GgufMetadata& metadata);

  std::optional<double> number(std::string_view key) const;
  // `otherwise` where it is absent.
  bool flag(std::string_view key, bool otherwise = false) const;
  bool given(std::string_view key) const { return values_.contains(std::string(key)); }
  std::string text(std::string_view key) const;  // "" where it is absent
  // "2,15,27" or a list; empty where it is absent or has nothing in it. kCorrupt: something else.
  Result<std::vector<uint32_t>> list(std::string_view key) const;

  // How RoPE is stretched, and divisors of the pairs' frequencies (rope_dim / 2) or none. What is not known
  // (dynamic, longrope) is left out, with a warning: guesses in long texts are worse for it. kCorrupt where
  // a number that it needs is absent.
  struct Rope {
    RopeScaling scaling;
    std::vector<float> factors;
  };
  Result<Rope> rope(uint32_t rope_dim, double base) const;

 private:
  void add_defaults();

  std::map<std::string, std::string> values_;  // as text; lists with commas
};

}  // namespace kvasir
