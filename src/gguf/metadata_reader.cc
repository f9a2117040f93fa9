#include "gguf/metadata_reader.h"

#include <fmt/core.h>

#include <bit>
#include <limits>
#include <utility>
#include <vector>

namespace kvasir {
namespace {

// gguf_metadata_value_type of the specification.
enum class ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// The specification's bound on keys.
constexpr uint64_t kMaxKeyBytes = 65535;
// A key of one byte with a one-byte value: length, key, type, value.
constexpr uint64_t kMinPairBytes = 8 + 1 + 4 + 1;
// Far above any model: they bound the time and memory that a large file of nothing but metadata costs.
constexpr uint64_t kMaxPairs = uint64_t{1} << 16;
constexpr uint64_t kMaxElements = uint64_t{1} << 24;  // of all arrays together
constexpr uint64_t kMaxBytes = uint64_t{1} << 28;     // up to the end of the last pair

class MetadataReader {
 public:
  explicit MetadataReader(ByteCursor& in) : in_(in) {}

  Status read_pair(GgufMetadata& out);

 private:
  using Value = GgufMetadata::Value;

  Result<Value> read_array();
  Result<Value> read_elements(uint32_t type, uint64_t count);
  template <class Stored, class Wide>
  Result<Value> read_numbers(uint64_t count);
  Result<Value> read_bools(uint64_t count);
  Result<Value> read_strings(uint64_t count);
  Status check_count(uint64_t count, uint64_t min_bytes);
  Result<std::string_view> read_string(std::string_view what);

  ByteCursor& in_;
  std::string name_;  // of the key being read, as errors show it
  uint64_t elements_left_ = kMaxElements;
};

// Before anything is allocated for `count` values of at least `min_bytes` each.
Status MetadataReader::check_count(uint64_t count, uint64_t min_bytes) {
  if (count > in_.remaining() / min_bytes)
    return corrupt(fmt::format("metadata key {} claims {} values, but {} bytes are left at byte {}", name_,
                               count, in_.remaining(), in_.position()));
  if (count > elements_left_)
    return corrupt(fmt::format("metadata key {} has {} values: more than {} in one file are refused", name_,
                               count, kMaxElements));
  elements_left_ -= count;
  return {};
}

// A string that is small enough to be copied.
Result<std::string_view> MetadataReader::read_string(std::string_view what) {
  KVASIR_ASSIGN_OR_RETURN(const std::string_view text, in_.read_string(what));
  if (in_.position() > kMaxBytes)
    return unsupported(fmt::format("{} of {} bytes ends at byte {}: metadata beyond byte {} is refused", what,
                                   text.size(), in_.position(), kMaxBytes));
  return text;
}

template <class Stored, class Wide>
Result<GgufMetadata::Value> MetadataReader::read_numbers(uint64_t count) {
  KVASIR_RETURN_IF_ERROR(check_count(count, sizeof(Stored)));
  std::vector<Wide> values(count);
  for (Wide& value : values) {
    Stored stored{};
    if (!in_.read(&stored)) return truncated(in_, fmt::format("the value of metadata key {}", name_));
    if constexpr (std::is_same_v<Stored, uint64_t>)
      if (stored > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        return unsupported(fmt::format("metadata key {} is {}, which is above 2^63 - 1", name_, stored));
    value = static_cast<Wide>(+stored);  // the sign is wanted: promote first
  }
  return Value(std::move(values));
}

Result<GgufMetadata::Value> MetadataReader::read_bools(uint64_t count) {
  KVASIR_RETURN_IF_ERROR(check_count(count, 1));
  std::vector<bool> values(count);
  for (uint64_t i = 0; i < count; ++i) {
    uint8_t stored = 0;
    if (!in_.read(&stored)) return truncated(in_, fmt::format("the value of metadata key {}", name_));
    if (stored > 1)
      return corrupt(fmt::format("metadata key {} has a boolean that is {}, not 0 or 1", name_, stored));
    values[i] = stored != 0;
  }
  return Value(std::move(values));
}

Result<GgufMetadata::Value> MetadataReader::read_strings(uint64_t count) {
  KVASIR_RETURN_IF_ERROR(check_count(count, sizeof(uint64_t)));
  std::vector<std::string> values;  // grows with what is really there, not with what is claimed
  for (uint64_t i = 0; i < count; ++i) {
    KVASIR_ASSIGN_OR_RETURN(const std::string_view text,
                            read_string(fmt::format("string {} of metadata key {}", i, name_)));
    values.emplace_back(text);
  }
  return Value(std::move(values));
}

// `count` values of a type as an array, whatever the count.
Result<GgufMetadata::Value> MetadataReader::read_elements(uint32_t type, uint64_t count) {
  switch (static_cast<ValueType>(type)) {
    case ValueType::kU8:
      return read_numbers<uint8_t, int64_t>(count);
    case ValueType::kI8:
      return read_numbers<int8_t, int64_t>(count);
    case ValueType::kU16:
      return read_numbers<uint16_t, int64_t>(count);
    case ValueType::kI16:
      return read_numbers<int16_t, int64_t>(count);
    case ValueType::kU32:
      return read_numbers<uint32_t, int64_t>(count);
    case ValueType::kI32:
      return read_numbers<int32_t, int64_t>(count);
    case ValueType::kU64:
      return read_numbers<uint64_t, int64_t>(count);
    case ValueType::kI64:
      return read_numbers<int64_t, int64_t>(count);
    case ValueType::kF32:
      return read_numbers<float, double>(count);
    case ValueType::kF64:
      return read_numbers<double, double>(count);
    case ValueType::kBool:
      return read_bools(count);
    case ValueType::kString:
      return read_strings(count);
    case ValueType::kArray:
      return unsupported(fmt::format("metadata key {} is an array of arrays", name_));
  }
  return corrupt(fmt::format("metadata key {} has value type {}, which does not exist", name_, type));
}

Result<GgufMetadata::Value> MetadataReader::read_array() {
  uint32_t type = 0;
  uint64_t count = 0;
  if (!in_.read(&type) || !in_.read(&count))
    return truncated(in_, fmt::format("the array of metadata key {}", name_));
  return read_elements(type, count);
}

// The only element of an array of one.
GgufMetadata::Value only_element(GgufMetadata::Value array) {
  return std::visit(
      [](auto&& held) -> GgufMetadata::Value {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, std::vector<bool>>)
          return bool{held[0]};
        else if constexpr (requires { typename Held::value_type; } && !std::is_same_v<Held, std::string>)
          return std::move(held[0]);
        else
          return std::forward<decltype(held)>(held);
      },
      std::move(array));
}

Status MetadataReader::read_pair(GgufMetadata& out) {
  KVASIR_ASSIGN_OR_RETURN(const std::string_view key, read_string("a metadata key"));
  if (key.empty() || key.size() > kMaxKeyBytes)
    return corrupt(fmt::format("a metadata key before byte {} is {} bytes long, which is outside 1 to {}",
                               in_.position(), key.size(), kMaxKeyBytes));
  name_ = quoted(key);
  if (out.contains(key)) return corrupt(fmt::format("metadata key {} is there twice", name_));
  uint32_t type = 0;
  if (!in_.read(&type)) return truncated(in_, fmt::format("the value type of metadata key {}", name_));
  if (key == kAlignmentKey && type != static_cast<uint32_t>(ValueType::kU32))
    return corrupt(fmt::format("metadata key {} has value type {}, not {} (u32)", name_, type,
                               static_cast<uint32_t>(ValueType::kU32)));
  if (type == static_cast<uint32_t>(ValueType::kArray)) {
    KVASIR_ASSIGN_OR_RETURN(Value array, read_array());
    out.insert(std::string(key), std::move(array));
    return {};
  }
  KVASIR_ASSIGN_OR_RETURN(Value one, read_elements(type, 1));
  out.insert(std::string(key), only_element(std::move(one)));
  return {};
}

}  // namespace

Result<GgufMetadata> read_metadata(ByteCursor& in, uint64_t pairs) {
  if (pairs > in.remaining() / kMinPairBytes)
    return corrupt(fmt::format("the file claims {} metadata keys, but {} bytes are left at byte {}", pairs,
                               in.remaining(), in.position()));
  if (pairs > kMaxPairs)
    return unsupported(
        fmt::format("the file has {} metadata keys: more than {} are refused", pairs, kMaxPairs));
  GgufMetadata metadata;
  MetadataReader reader(in);
  for (uint64_t i = 0; i < pairs; ++i) KVASIR_RETURN_IF_ERROR(reader.read_pair(metadata));
  return metadata;
}

Result<uint64_t> read_alignment(const GgufMetadata& metadata) {
  constexpr uint64_t kDefault = 32;
  KVASIR_ASSIGN_OR_RETURN(const auto value,
                          metadata.get_int(kAlignmentKey, 0, std::numeric_limits<uint32_t>::max()));
  if (!value) return kDefault;
  if (!std::has_single_bit(static_cast<uint64_t>(*value)))
    return corrupt(fmt::format("metadata key {} is {}, not a power of two", quoted(kAlignmentKey), *value));
  return static_cast<uint64_t>(*value);
}

}  // namespace kvasir
