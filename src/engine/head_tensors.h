#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "models/causal_lm.h"
#include "models/guess_head.h"
#include "models/own_matrix.h"
#include "safetensors/safetensors_file.h"

namespace kvasir {

// The numbers of a head's configuration: of config.json beside the file as Hugging Face models have it, with
// the objects in it opened ("eagle_config", "transformer_layer_config"), else of the file's own metadata.
class HeadConfig {
 public:
  // `file`: the safetensors file. kCorrupt where there is a config.json that is no JSON object.
  static Result<HeadConfig> read(const SafetensorsFile& file);

  std::optional<double> number(std::string_view key) const;
  bool flag(std::string_view key) const;  // false where it is absent
  bool given(std::string_view key) const { return values_.contains(std::string(key)); }
  // "2,15,27" or a list; empty where it is absent. kCorrupt: something else.
  Result<std::vector<uint32_t>> list(std::string_view key) const;

 private:
  std::map<std::string, std::string> values_;  // as text; lists with commas
};

// Takes the tensors of a head out of a safetensors file, and keeps count of which were asked for. The first
// fault stays: take everything, then ask status(). Every shape is checked before a value is read.
class HeadTensors {
 public:
  explicit HeadTensors(const SafetensorsFile& file) : file_(file) {}

  // The first of these that there is, "" for none. Names may stand behind one of "medusa_heads." and
  // "model.".
  bool has(std::string_view name) const { return find(name) != nullptr; }
  const SafeTensor* find(std::string_view name) const;

  // (n, k), packed as Q8_0 or F16; and n values, or none where `optional` and absent.
  OwnMatrix matrix(std::string_view name, uint32_t n, uint32_t k, bool f16 = false);
  std::vector<float> vector(std::string_view name, uint32_t n, bool optional = false);
  std::vector<int64_t> integers(std::string_view name);
  // Rows of a matrix (n, k), in another order and perhaps not all.
  OwnMatrix some_rows(std::string_view name, uint32_t n, uint32_t k, const std::vector<uint32_t>& rows);
  // Rows of a matrix that is there, whatever they are; 0 with a fault where it has not k columns.
  uint32_t rows_of(std::string_view name, uint32_t k);
  // Not asked for, and of no use here.
  void ignore(std::string_view name);

  void fail(const Status& status);
  // The first fault; kUnsupported where a tensor was not asked for.
  Status status() const;

 private:
  const SafeTensor* take(std::string_view name, const std::vector<uint64_t>& shape);
  std::vector<float> floats(std::string_view name, const std::vector<uint64_t>& shape);

  const SafetensorsFile& file_;
  std::set<std::string> used_;
  Status status_;
};

// An output head: tensor `name` with a row for each of `tokens` (of the target's vocabulary, any order), or,
// where the file has none, the target's own rows. `tokens` empty: a row for every token, or of the target's
// own rows those of the first `frequent` (0: all).
std::shared_ptr<GuessHead> guess_head(HeadTensors& tensors, std::string_view name, const CausalLm& target,
                                      const std::vector<int64_t>& tokens, uint32_t frequent);

// "DIR/model.safetensors" for a folder, else the path itself.
std::string head_path(const std::string& path);

}  // namespace kvasir
