#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "gguf/gguf_file.h"
#include "kernels/matrix.h"

namespace kvasir {

// A tensor's place in the packed memory and what becomes of it there.
struct Placement {
  enum class Kind { kPacked, kTransposed, kFloats, kRawRows };
  Kind kind;
  const TensorInfo* tensor;
  uint32_t first_row;  // of the tensor, whose rows are taken from here on
  uint32_t rows;
  size_t offset;
  size_t bytes;
};

// Gives the tensors that a model calls for their places in memory that begins at `base`, and checks their
// shapes. A model is walked twice (bind_model.h): with a base that is never dereferenced, to plan, and with
// the memory. After the first failure, status() says what it was, and names the tensor and the numbers.
class TensorBinder {
 public:
  TensorBinder(const GgufFile& file, const std::byte* base) : file_(file), base_(base) {}

  enum class Need { kRequired, kOptional };

  // A packed matrix of n outputs and k inputs.
  void matrix(const std::string& name, uint64_t n, uint64_t k, PackedMatrix& out,
              Need need = Need::kRequired);
  // Outputs [first, first + kept) of a matrix of n outputs and k inputs.
  void some_rows(const std::string& name, uint64_t first, uint64_t kept, uint64_t n, uint64_t k,
                 PackedMatrix& out, Need need = Need::kRequired);
  // The matrices of `experts` experts, n outputs and k inputs each, one behind the other in one tensor.
  void experts(const std::string& name, uint32_t experts, uint64_t n, uint64_t k, PackedMatrix& out);
  // The same from one tensor for each, whose names name_of() gives; they must be of one type.
  void experts_apart(const std::function<std::string(uint32_t)>& name_of, uint32_t experts, uint64_t n,
                     uint64_t k, PackedMatrix& out);
  // The same values as a matrix of k outputs and `kept` inputs, in F32: formats of blocks have no other way
  // to stand as columns, and their values stay what they are.
  void transposed_rows(const std::string& name, uint64_t first, uint64_t kept, uint64_t n, uint64_t k,
                       PackedMatrix& out);
  // A tensor of `count` matrices of n outputs and k inputs one behind the other, shaped (k, n, count) or (k,
  // n * count); n is a multiple of a panel's columns.
  void stack(const std::string& name, uint32_t count, uint64_t n, uint64_t k, std::vector<PackedMatrix>& out);
  // Floats [first, first + kept) of a vector of n; whatever their type in the file, they are kept as f32.
  void some_floats(const std::string& name, uint64_t first, uint64_t kept, uint64_t n, const float*& out,
                   Need need);
  // A vector of n floats; a table of `rows` vectors, one behind the other.
  void floats(const std::string& name, uint64_t n, const float*& out, Need need) {
    some_floats(name, 0, n, n, out, need);
  }
  void table(const std::string& name, uint64_t n, uint64_t rows, const float*& out, Need need);
  // The first `kept` rows of a matrix, in the file's own format.
  void raw_rows(const std::string& name, uint32_t kept, TensorView& out);

  // The tensor, which from now on counts as used; null where there is none.
  const TensorInfo* find(const std::string& name, Need need);
  // Whether the file has the tensor; it does not count as used.
  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }

  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  Status status() const { return status_; }
  const GgufMetadata& metadata() const { return file_.metadata(); }
  const GgufFile& file() const { return file_; }
  size_t total() const { return total_; }
  const std::vector<Placement>& placements() const { return placements_; }
  bool used(const std::string& name) const { return used_.contains(name); }

 private:
  bool check_shape(const TensorInfo& t, uint64_t k, uint64_t n, uint64_t experts = 1);
  void pack(const TensorInfo& t, uint64_t first, uint64_t kept, uint64_t k, PackedMatrix& out);
  const std::byte* place(Placement placement);

  const GgufFile& file_;
  const std::byte* base_;
  size_t total_ = 0;
  std::vector<Placement> placements_;
  std::unordered_set<std::string> used_;
  Status status_;
};

}  // namespace kvasir
