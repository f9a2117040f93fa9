#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "gguf/gguf_file.h"
#include "kernels/quant_codec.h"

namespace kvasir {
namespace {

// What a caller may do with any file that was accepted: ask every key for every kind, and decode the ends of
// every tensor. Sanitizers see reads outside the bytes; the checks see a directory that contradicts itself.
void use(const GgufFile& file, std::span<const std::byte> bytes) {
  for (const auto& [key, value] : file.metadata().entries()) {
    CHECK(file.metadata().find(key) == &value);
    (void)file.metadata().get_int(key, -1000, 1000);
    (void)file.metadata().get_float(key);
    (void)file.metadata().get_bool(key);
    (void)file.metadata().get_string(key);
    (void)file.metadata().get_strings(key);
    (void)file.metadata().get_floats(key);
  }
  for (const TensorInfo& tensor : file.tensors()) {
    CHECK(file.find_tensor(tensor.name) == &tensor);
    const TensorView& view = tensor.view;
    const size_t begin = static_cast<size_t>(view.data - bytes.data());
    CHECK(begin <= bytes.size() && view.bytes() <= bytes.size() - begin && view.bytes() > 0);
    CHECK(view.elements() > 0);
    const DTypeInfo& type = dtype_info(view.type);
    std::vector<float> values(type.block_elements);
    dequantize(view.type, view.data, values.size(), values.data());
    dequantize(view.type, view.data + view.bytes() - type.block_bytes, values.size(), values.data());
    file.release(tensor);
  }
  for (const IntegerTensor& tensor : file.integers()) {
    CHECK(file.find_integers(tensor.name) == &tensor);
    CHECK(!tensor.values().empty());
  }
}

}  // namespace
}  // namespace kvasir

// Reads arbitrary bytes as a GGUF file. The copy has exactly the input's size, so that a read past it is
// seen.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::unique_ptr<std::byte[]> copy(new std::byte[size]);
  if (size > 0) std::memcpy(copy.get(), data, size);
  const std::span<const std::byte> bytes(copy.get(), size);
  const kvasir::Result<kvasir::GgufFile> file = kvasir::GgufFile::parse(bytes, "fuzz");
  if (file.ok())
    kvasir::use(*file, bytes);
  else
    CHECK(!file.message().empty());
  return 0;
}
