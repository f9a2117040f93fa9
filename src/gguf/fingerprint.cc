#include "gguf/fingerprint.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace kvasir {
namespace {

constexpr size_t kPiece = size_t{16} << 20;  // hashed, then let go of

// Every field goes in with its length before it, so that no two lists of fields look alike.
class Hash {
 public:
  Hash() : state_(XXH3_createState()) { XXH3_128bits_reset(state_.get()); }

  void bytes(const void* data, size_t size) { XXH3_128bits_update(state_.get(), data, size); }
  void number(uint64_t n) { bytes(&n, sizeof(n)); }
  void text(std::string_view t) {
    number(t.size());
    bytes(t.data(), t.size());
  }
  std::string hex() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

  template <class T>
  void value(const T& v) {
    if constexpr (std::is_same_v<T, std::string>) {
      text(v);
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      number(v.size());
      for (const std::string& s : v) text(s);
    } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
      number(v.size());
      for (const bool b : v) number(b ? 1 : 0);
    } else if constexpr (std::is_same_v<T, bool>) {
      number(v ? 1 : 0);
    } else if constexpr (std::is_arithmetic_v<T>) {
      static_assert(sizeof(T) == 8);
      bytes(&v, sizeof(v));
    } else {
      number(v.size());
      bytes(v.data(), v.size() * sizeof(v[0]));
    }
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

}  // namespace

std::string model_fingerprint(const GgufFile& file) {
  Hash hash;
  hash.number(file.metadata().entries().size());
  for (const auto& [key, value] : file.metadata().entries()) {
    hash.text(key);
    hash.number(value.index());
    std::visit([&](const auto& v) { hash.value(v); }, value);
  }
  hash.number(file.tensors().size());
  for (const TensorInfo& tensor : file.tensors()) {
    hash.text(tensor.name);
    hash.number(static_cast<uint64_t>(tensor.view.type));
    for (const uint64_t extent : tensor.view.shape) hash.number(extent);
    const size_t size = tensor.view.bytes();
    hash.number(size);
    for (size_t at = 0; at < size; at += kPiece) {
      const size_t n = std::min(kPiece, size - at);
      hash.bytes(tensor.view.data + at, n);
      file.release(tensor, at, n);
    }
  }
  for (const IntegerTensor& tensor : file.integers()) {
    hash.text(tensor.name);
    hash.text(tensor.type);
    hash.bytes(tensor.bytes.data(), tensor.bytes.size());
  }
  return hash.hex();
}

}  // namespace kvasir
