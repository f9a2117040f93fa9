#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/head_file.h"
#include "models/causal_lm.h"
#include "models/guess_head.h"
#include "models/own_matrix.h"

namespace kvasir {

// Takes the tensors of a head out of its file, and keeps count of which were asked for. The first
// fault stays: take everything, then ask status(). Every shape is checked before a value is read.
class HeadTensors {
 public:
  explicit HeadTensors(const HeadFile& file) : file_(file) {}

  // Names may stand behind one of "medusa_heads." and "model.".
  bool has(std::string_view name) const { return find(name) != nullptr; }
  const HeadTensor* find(std::string_view name) const;

  // (n, k), packed as Q8_0 or F16; and n values, or none where `optional` and absent.
  OwnMatrix matrix(std::string_view name, uint32_t n, uint32_t k, bool f16 = false);
  std::vector<float> vector(std::string_view name, uint32_t n, bool optional = false);
  std::vector<int64_t> integers(std::string_view name);
  // Row `row` of a matrix (n, k).
  std::vector<float> row(std::string_view name, uint32_t n, uint32_t k, uint32_t row);
  // Rows of a matrix (n, k), in another order and perhaps not all.
  OwnMatrix some_rows(std::string_view name, uint32_t n, uint32_t k, const std::vector<uint32_t>& rows);
  // Rows of a matrix that is there, whatever they are; 0 with a fault where it has not k columns.
  uint32_t rows_of(std::string_view name, uint32_t k);
  // Not asked for, and of no use here.
  void ignore(std::string_view name);

  void fail(const Status& status);
  const Status& fault() const { return status_; }  // the first one so far
  // The first fault; kUnsupported where a tensor was not asked for.
  Status status() const;

 private:
  const HeadTensor* take(std::string_view name, const std::vector<uint64_t>& shape);
  std::vector<float> floats(std::string_view name, const std::vector<uint64_t>& shape);
  // The values, if none is NaN or infinite.
  std::vector<float> finite(const HeadTensor& tensor, Result<std::vector<float>> values);

  const HeadFile& file_;
  std::set<std::string> used_;
  Status status_;
};

// An output head: tensor `name` with a row for each of `tokens` (of the target's vocabulary, any order) or
// one for each token that the target has, of which those are taken; where the file has none, the target's own
// rows. `tokens` empty: a row for every token, or of the target's own rows those of the first `frequent` (0:
// all).
std::shared_ptr<GuessHead> guess_head(HeadTensors& tensors, std::string_view name, const CausalLm& target,
                                      const std::vector<int64_t>& tokens, uint32_t frequent);

}  // namespace kvasir
