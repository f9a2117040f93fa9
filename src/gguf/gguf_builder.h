#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace kvasir {

// The bytes of a file, appended value by value, little-endian.
class ByteWriter {
 public:
  template <class T>
  ByteWriter& put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
    return *this;
  }
  ByteWriter& put_string(std::string_view text) {
    put(uint64_t{text.size()});
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), bytes, bytes + text.size());
    return *this;
  }
  ByteWriter& append(const std::vector<std::byte>& bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  void align(uint64_t alignment) {
    while (bytes_.size() % alignment != 0) bytes_.push_back(std::byte{0});
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Makes GGUF files for tests, right ones and wrong ones: it checks nothing. Public members change what is
// said about the file without changing what is in it.
class GgufBuilder {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;                  // used for the layout; not written as a key
  std::optional<uint64_t> claimed_pairs;    // instead of the true count
  std::optional<uint64_t> claimed_tensors;  // instead of the true count

  // A pair whose bytes after the key are value type `type` and then `value`.
  GgufBuilder& pair(std::string_view key, uint32_t type, const ByteWriter& value) {
    pairs_.put_string(key).put(type).append(value.bytes());
    ++pair_count_;
    return *this;
  }
  GgufBuilder& u16(std::string_view key, uint16_t v) { return pair(key, 2, ByteWriter().put(v)); }
  GgufBuilder& u32(std::string_view key, uint32_t v) { return pair(key, 4, ByteWriter().put(v)); }
  GgufBuilder& i32(std::string_view key, int32_t v) { return pair(key, 5, ByteWriter().put(v)); }
  GgufBuilder& f32(std::string_view key, float v) { return pair(key, 6, ByteWriter().put(v)); }
  GgufBuilder& string(std::string_view key, std::string_view v) {
    return pair(key, 8, ByteWriter().put_string(v));
  }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& values) {
    ByteWriter out;
    out.put(uint32_t{8}).put(uint64_t{values.size()});
    for (const std::string& value : values) out.put_string(value);
    return pair(key, 9, out);
  }
  // Any bytes in place of a pair; counts as one.
  GgufBuilder& raw_pair(const ByteWriter& bytes) {
    pairs_.append(bytes.bytes());
    ++pair_count_;
    return *this;
  }

  // A tensor of ggml type `type` with `data`, placed behind the one before it or where `offset` says.
  GgufBuilder& tensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& dims,
                      const std::vector<std::byte>& data, std::optional<uint64_t> offset = std::nullopt) {
    data_.align(alignment);
    tensors_.put_string(name).put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) tensors_.put(dim);
    tensors_.put(type).put(offset.value_or(data_.bytes().size()));
    data_.append(data);
    ++tensor_count_;
    return *this;
  }

  std::vector<std::byte> build() const {
    ByteWriter out;
    out.put(uint32_t{0x46554747}).put(version);
    out.put(claimed_tensors.value_or(tensor_count_)).put(claimed_pairs.value_or(pair_count_));
    out.append(pairs_.bytes()).append(tensors_.bytes());
    out.align(alignment);
    out.append(data_.bytes());
    return out.bytes();
  }

 private:
  ByteWriter pairs_;
  ByteWriter tensors_;
  ByteWriter data_;
  uint64_t pair_count_ = 0;
  uint64_t tensor_count_ = 0;
};

}  // namespace kvasir
