#pragma once

#include <cstddef>
#include <span>

namespace kvasir {

// Page-aligned anonymous memory that asks for huge pages; move-only, zero until written. Used for weights, KV
// and scratch, so that it never shares a page with the heap and can be given back whole.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Throws std::bad_alloc where the kernel refuses; callers check sizes against the memory that is there
  // first.
  explicit AlignedBuffer(size_t bytes);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;

  // Has the kernel find memory now for bytes [offset, offset + bytes) of those that have none yet; what they
  // hold stays. False where the kernel cannot or will not (Linux before 5.14): a wish as well.
  bool populate(size_t offset, size_t bytes) const;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data_), size_ / sizeof(T)};
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace kvasir
