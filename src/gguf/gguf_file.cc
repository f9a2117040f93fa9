#include "gguf/gguf_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "gguf/byte_cursor.h"
#include "gguf/metadata_reader.h"
#include "gguf/split_name.h"
#include "gguf/tensor_directory.h"

namespace kvasir {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kMinVersion = 2;
constexpr uint32_t kMaxVersion = 3;

constexpr std::string_view kSplitNo = "split.no";
constexpr std::string_view kSplitCount = "split.count";
constexpr std::string_view kSplitTensors = "split.tensors.count";

struct Header {
  uint32_t version = 0;
  uint64_t tensors = 0;
  uint64_t pairs = 0;
};

Status check_version(uint32_t version) {
  if (version >= kMinVersion && version <= kMaxVersion) return {};
  const uint32_t swapped = __builtin_bswap32(version);
  if (swapped >= 1 && swapped <= kMaxVersion)
    return unsupported(
        fmt::format("the file is big-endian (version {}), and only little-endian files are read", swapped));
  return unsupported(
      fmt::format("GGUF version {} cannot be read, only {} to {}", version, kMinVersion, kMaxVersion));
}

Result<Header> read_header(ByteCursor& in) {
  uint32_t magic = 0;
  Header header;
  if (!in.read(&magic)) return truncated(in, "the header");
  if (magic != kMagic)
    return corrupt(fmt::format("not a GGUF file: it begins with {:02x} {:02x} {:02x} {:02x}", magic & 255,
                               magic >> 8 & 255, magic >> 16 & 255, magic >> 24));
  if (!in.read(&header.version)) return truncated(in, "the header");
  KVASIR_RETURN_IF_ERROR(check_version(header.version));
  if (!in.read(&header.tensors) || !in.read(&header.pairs)) return truncated(in, "the header");
  return header;
}

// What one file says by itself.
struct Shard {
  uint32_t version = 0;
  GgufMetadata metadata;
  TensorDirectory directory;
};

Result<Shard> read_shard(std::span<const std::byte> bytes, uint32_t index) {
  ByteCursor in(bytes);
  KVASIR_ASSIGN_OR_RETURN(const Header header, read_header(in));
  Shard shard;
  shard.version = header.version;
  KVASIR_ASSIGN_OR_RETURN(shard.metadata, read_metadata(in, header.pairs));
  KVASIR_ASSIGN_OR_RETURN(const uint64_t alignment, read_alignment(shard.metadata));
  KVASIR_ASSIGN_OR_RETURN(shard.directory, read_tensors(in, header.tensors, alignment, bytes, index));
  return shard;
}

// The error with the file's name before it.
Status in_file(const std::string& name, const Status& status) {
  return {status.code(), fmt::format("'{}': {}", name, status.message())};
}

// How many files the model is split into by the metadata of its first one; 1 when it is not split.
Result<uint32_t> split_count(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(const auto count,
                          metadata.get_int(kSplitCount, 0, std::numeric_limits<uint16_t>::max()));
  return static_cast<uint32_t>(std::max<int64_t>(count.value_or(1), 1));
}

// The keys that tie file `index` to its siblings.
Status check_split_keys(const GgufMetadata& metadata, uint32_t index, uint32_t count) {
  KVASIR_ASSIGN_OR_RETURN(const int64_t no,
                          metadata.require_int(kSplitNo, 0, std::numeric_limits<uint16_t>::max()));
  KVASIR_ASSIGN_OR_RETURN(const int64_t files,
                          metadata.require_int(kSplitCount, 0, std::numeric_limits<uint16_t>::max()));
  if (no != index)
    return corrupt(fmt::format("metadata key '{}' is {}, but the file's name says {}", kSplitNo, no, index));
  if (files != count)
    return corrupt(
        fmt::format("metadata key '{}' is {}, but the file's name says {}", kSplitCount, files, count));
  return {};
}

// Whether the file called `name` is one of several, and is the first: nullopt when it stands alone.
Result<std::optional<SplitName>> check_first_of_split(const std::string& name, const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(const uint32_t count, split_count(metadata));
  std::optional<SplitName> split = parse_split_name(name);
  if (count == 1 && (!split || split->count == 1)) return std::optional<SplitName>();
  if (!split)
    return invalid_argument(
        fmt::format("metadata key '{}' is {}, but the name does not end in -00001-of-{:05}.gguf, so the "
                    "other files are unknown",
                    kSplitCount, count, count));
  if (split->number != 1)
    return invalid_argument(fmt::format("this is file {} of {}: open the first, '{}'", split->number,
                                        split->count, split->sibling(1)));
  KVASIR_RETURN_IF_ERROR(check_split_keys(metadata, 0, split->count));
  return split;
}

}  // namespace

// Puts a GgufFile together from its shards.
class GgufReader {
 public:
  static Status read_mapped(GgufFile& file, MappedFile mapped);
  static Status read_bytes(GgufFile& file, std::span<const std::byte> bytes);

 private:
  static Status add_first(GgufFile& file, std::span<const std::byte> bytes);
  static Status add_sibling(GgufFile& file, const SplitName& split, uint32_t index);
  static Status check_total(const GgufFile& file, uint32_t files);
  static Status index(GgufFile& file);
};

Status GgufReader::add_first(GgufFile& file, std::span<const std::byte> bytes) {
  KVASIR_ASSIGN_OR_RETURN(Shard shard, read_shard(bytes, 0));
  file.version_ = shard.version;
  file.file_bytes_ = bytes.size();
  file.metadata_ = std::move(shard.metadata);
  file.tensors_ = std::move(shard.directory.tensors);
  file.integers_ = std::move(shard.directory.integers);
  return {};
}

Status GgufReader::add_sibling(GgufFile& file, const SplitName& split, uint32_t index) {
  const std::string path = split.sibling(index + 1);
  KVASIR_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  Result<Shard> shard = read_shard(mapped.bytes(), index);
  if (!shard.ok()) return in_file(path, shard.status());
  if (Status keys = check_split_keys(shard->metadata, index, split.count); !keys.ok())
    return in_file(path, keys);
  file.file_bytes_ += mapped.bytes().size();
  file.shards_.push_back(std::move(mapped));
  TensorDirectory& more = shard->directory;
  std::move(more.tensors.begin(), more.tensors.end(), std::back_inserter(file.tensors_));
  std::move(more.integers.begin(), more.integers.end(), std::back_inserter(file.integers_));
  return {};
}

Status GgufReader::check_total(const GgufFile& file, uint32_t files) {
  KVASIR_ASSIGN_OR_RETURN(const int64_t total,
                          file.metadata_.require_int(kSplitTensors, 0, std::numeric_limits<int64_t>::max()));
  const size_t there = file.tensors_.size() + file.integers_.size();
  if (static_cast<uint64_t>(total) == there) return {};
  return corrupt(fmt::format("metadata key '{}' is {}, but the {} files hold {} tensors", kSplitTensors,
                             total, files, there));
}

Status GgufReader::index(GgufFile& file) {
  KVASIR_ASSIGN_OR_RETURN(file.by_name_, index_by_name(file.tensors_, file.integers_));
  return {};
}

Status GgufReader::read_mapped(GgufFile& file, MappedFile mapped) {
  KVASIR_RETURN_IF_ERROR(add_first(file, mapped.bytes()));
  file.shards_.push_back(std::move(mapped));
  KVASIR_ASSIGN_OR_RETURN(const std::optional<SplitName> split,
                          check_first_of_split(file.path_, file.metadata_));
  if (split) {
    for (uint32_t i = 1; i < split->count; ++i) KVASIR_RETURN_IF_ERROR(add_sibling(file, *split, i));
    KVASIR_RETURN_IF_ERROR(check_total(file, split->count));
  }
  return index(file);
}

Status GgufReader::read_bytes(GgufFile& file, std::span<const std::byte> bytes) {
  KVASIR_RETURN_IF_ERROR(add_first(file, bytes));
  KVASIR_ASSIGN_OR_RETURN(const uint32_t count, split_count(file.metadata_));
  if (count > 1)
    return unsupported(
        fmt::format("metadata key '{}' is {}: split models are read from files only", kSplitCount, count));
  return index(file);
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  KVASIR_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  GgufFile file;
  file.path_ = path;
  if (Status status = GgufReader::read_mapped(file, std::move(mapped)); !status.ok())
    return in_file(path, status);
  return file;
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, const std::string& name) {
  GgufFile file;
  file.path_ = name;
  if (Status status = GgufReader::read_bytes(file, bytes); !status.ok()) return in_file(name, status);
  return file;
}

const TensorInfo* GgufFile::find_tensor(std::string_view name) const {
  const auto it =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](uint32_t i, std::string_view wanted) { return tensors_[i].name < wanted; });
  return it != by_name_.end() && tensors_[*it].name == name ? &tensors_[*it] : nullptr;
}

const IntegerTensor* GgufFile::find_integers(std::string_view name) const {
  const auto it =
      std::find_if(integers_.begin(), integers_.end(), [name](const auto& t) { return t.name == name; });
  return it == integers_.end() ? nullptr : &*it;
}

void GgufFile::release(const TensorInfo& tensor, size_t offset, size_t bytes) const {
  if (tensor.shard < shards_.size()) shards_[tensor.shard].release({tensor.view.data + offset, bytes});
}

}  // namespace kvasir
