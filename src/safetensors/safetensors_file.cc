#include "safetensors/safetensors_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstring>
#include <optional>
#include <utility>

#include "gguf/byte_cursor.h"
#include "kernels/quant_codec.h"

namespace kvasir {
namespace {

namespace json = boost::json;

// The format allows 100 MB, which take seconds and a GiB to parse; a head with a hundred tensors has 10 KB.
constexpr uint64_t kMostHeaderBytes = uint64_t{16} << 20;
constexpr size_t kMostDimensions = 8;

constexpr SafeType kTypes[] = {{"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
                               {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
                               {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

std::optional<uint64_t> whole_number(const json::value& v) {
  if (v.is_int64() && v.get_int64() >= 0) return static_cast<uint64_t>(v.get_int64());
  if (v.is_uint64()) return v.get_uint64();
  return std::nullopt;
}

// Whole numbers of a list; none where it is anything else or longer than `most`.
std::optional<std::vector<uint64_t>> whole_numbers(const json::value* v, size_t most) {
  if (v == nullptr || !v->is_array() || v->get_array().size() > most) return std::nullopt;
  std::vector<uint64_t> numbers;
  for (const json::value& item : v->get_array()) {
    const auto number = whole_number(item);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

// Bytes of so many values, or none where that does not fit 64 bits.
std::optional<uint64_t> bytes_of(const std::vector<uint64_t>& shape, uint64_t each) {
  uint64_t bytes = each;
  for (const uint64_t n : shape) {
    if (__builtin_mul_overflow(bytes, n, &bytes)) return std::nullopt;
  }
  return bytes;
}

Result<SafeTensor> read_entry(std::string_view name, const json::value& entry,
                              std::span<const std::byte> data) {
  const auto bad = [&](std::string what) {
    return corrupt(fmt::format("tensor {}: {}", quoted(name), what));
  };
  if (!entry.is_object()) return bad("its entry in the header is no object");
  const json::object& fields = entry.get_object();
  const json::value* dtype = fields.if_contains("dtype");
  const auto shape = whole_numbers(fields.if_contains("shape"), kMostDimensions);
  const auto offsets = whole_numbers(fields.if_contains("data_offsets"), 2);
  if (dtype == nullptr || !dtype->is_string()) return bad("it has no dtype");
  if (!shape) return bad(fmt::format("its shape is no list of at most {} whole numbers", kMostDimensions));
  if (!offsets || offsets->size() != 2) return bad("its data_offsets are no two whole numbers");
  SafeTensor tensor{
      .name = std::string(name), .type = find_safe_type(dtype->get_string()), .shape = *shape, .bytes = {}};
  if (tensor.type == nullptr) return bad(fmt::format("its dtype is {}", quoted(dtype->get_string())));
  const uint64_t begin = (*offsets)[0], end = (*offsets)[1];
  if (begin > end || end > data.size())
    return bad(fmt::format("it lies from {} to {} of {} bytes", begin, end, data.size()));
  const auto wanted = bytes_of(*shape, tensor.type->bytes);
  if (!wanted || *wanted != end - begin)
    return bad(fmt::format("{} values of type {} do not take {} bytes", fmt::join(*shape, " x "),
                           tensor.type->name, end - begin));
  tensor.bytes = data.subspan(begin, end - begin);
  return tensor;
}

// Nothing may overlap, and nothing be left between tensors or behind the last.
Status check_gapless(const std::vector<SafeTensor>& tensors, std::span<const std::byte> data) {
  const std::byte* at = data.data();
  for (const SafeTensor& t : tensors) {
    if (t.bytes.data() != at)
      return corrupt(fmt::format("tensor {} does not begin where the one before it ends", quoted(t.name)));
    at += t.bytes.size();
  }
  const auto covered = static_cast<uint64_t>(at - data.data());
  if (covered == data.size()) return {};
  return corrupt(fmt::format("the tensors take {} of {} bytes", covered, data.size()));
}

Result<json::object> read_header(std::span<const std::byte> bytes) {
  uint64_t length = 0;
  if (bytes.size() < sizeof(length))
    return corrupt(fmt::format("{} bytes are no safetensors file", bytes.size()));
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > bytes.size() - sizeof(length))
    return corrupt(fmt::format("no safetensors file: its header would have {} bytes, and the file has {}",
                               length, bytes.size()));
  if (length > kMostHeaderBytes)
    return unsupported(fmt::format("its header has {} bytes; at most {} are read", length, kMostHeaderBytes));
  boost::system::error_code error;
  json::value header =
      json::parse({reinterpret_cast<const char*>(bytes.data()) + sizeof(length), length}, error);
  if (error || !header.is_object()) return corrupt("no safetensors file: its header is no JSON object");
  return std::move(header.get_object());
}

}  // namespace

const SafeType* find_safe_type(std::string_view name) {
  const auto it = std::find_if(std::begin(kTypes), std::end(kTypes),
                               [name](const SafeType& type) { return type.name == name; });
  return it == std::end(kTypes) ? nullptr : it;
}

uint64_t SafeTensor::elements() const {
  return bytes.size() / type->bytes;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  KVASIR_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::open(path));
  KVASIR_ASSIGN_OR_RETURN(SafetensorsFile file, parse(mapping.bytes(), path));
  file.mapping_.push_back(std::move(mapping));
  return file;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes, const std::string& name) {
  const auto in_file = [&](const Status& status) {
    return Status(status.code(), fmt::format("'{}': {}", name, status.message()));
  };
  const Result<json::object> header = read_header(bytes);
  if (!header.ok()) return in_file(header.status());
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  const std::span<const std::byte> data = bytes.subspan(sizeof(length) + length);
  SafetensorsFile file;
  file.path_ = name;
  for (const auto& [key, value] : *header) {
    if (key == "__metadata__") {
      if (!value.is_object()) return in_file(corrupt("its __metadata__ is no object"));
      for (const auto& [k, v] : value.get_object()) {
        if (v.is_string()) file.metadata_[std::string(k)] = std::string(v.get_string());
      }
      continue;
    }
    Result<SafeTensor> tensor = read_entry(key, value, data);
    if (!tensor.ok()) return in_file(tensor.status());
    file.tensors_.push_back(std::move(tensor).value());
  }
  std::sort(file.tensors_.begin(), file.tensors_.end(), [](const SafeTensor& a, const SafeTensor& b) {
    return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
  });
  if (const Status whole = check_gapless(file.tensors_, data); !whole.ok()) return in_file(whole);
  return file;
}

const SafeTensor* SafetensorsFile::find(std::string_view name) const {
  const auto it =
      std::find_if(tensors_.begin(), tensors_.end(), [name](const SafeTensor& t) { return t.name == name; });
  return it == tensors_.end() ? nullptr : &*it;
}

Result<std::vector<float>> float_values(const SafeTensor& tensor) {
  std::vector<float> values(tensor.elements());
  const std::byte* at = tensor.bytes.data();
  const auto each = [&](auto stored, auto decode) {
    for (size_t i = 0; i < values.size(); ++i) {
      std::memcpy(&stored, at + i * sizeof(stored), sizeof(stored));
      values[i] = decode(stored);
    }
  };
  if (tensor.type->name == "F32")
    each(0.0f, [](float x) { return x; });
  else if (tensor.type->name == "F16")
    each(uint16_t{0}, half_to_float);
  else if (tensor.type->name == "BF16")
    each(uint16_t{0}, bf16_to_float);
  else
    return unsupported(fmt::format("tensor {} is of type {}; F32, F16 and BF16 are read", quoted(tensor.name),
                                   tensor.type->name));
  return values;
}

Result<std::vector<int64_t>> integer_values(const SafeTensor& tensor) {
  std::vector<int64_t> values(tensor.elements());
  const std::byte* at = tensor.bytes.data();
  const auto each = [&](auto stored) {
    for (size_t i = 0; i < values.size(); ++i) {
      std::memcpy(&stored, at + i * sizeof(stored), sizeof(stored));
      values[i] = stored;
    }
  };
  if (tensor.type->name == "I64")
    each(int64_t{0});
  else if (tensor.type->name == "I32")
    each(int32_t{0});
  else if (tensor.type->name == "U8" || tensor.type->name == "BOOL")
    each(uint8_t{0});
  else
    return unsupported(fmt::format("tensor {} is of type {}; I64, I32, U8 and BOOL are read",
                                   quoted(tensor.name), tensor.type->name));
  return values;
}

}  // namespace kvasir
