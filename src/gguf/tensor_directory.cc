#include "gguf/tensor_directory.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

namespace kvasir {
namespace {

// The specification's bound on tensor names.
constexpr uint64_t kMaxNameBytes = 64;
constexpr uint32_t kMaxDims = 4;
// Several times the tensors of any model, and no more than can be read in well under a second.
constexpr uint64_t kMaxTensors = uint64_t{1} << 18;
// A name of one byte and one dimension: length, name, dimension count, dimension, type, offset.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 8 + 4 + 8;
static_assert(std::tuple_size_v<decltype(TensorView::shape)> == kMaxDims);

// Types of the format that are not in dtype_table(), by the names that people know them by.
struct OtherType {
  uint32_t number;
  std::string_view name;
};
constexpr OtherType kOtherTypes[] = {
    {4, "Q4_2, removed"}, {5, "Q4_3, removed"}, {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
    {18, "IQ3_XXS"},      {19, "IQ1_S"},        {21, "IQ3_S"}, {22, "IQ2_S"}, {23, "IQ4_XS"},  {24, "I8"},
    {25, "I16"},          {28, "F64"},          {29, "IQ1_M"}, {34, "TQ1_0"}, {35, "TQ2_0"},
};

// Types of whole numbers that are read.
constexpr DTypeInfo kIntegerTypes[] = {{DType{26}, "I32", 1, 4}, {DType{27}, "I64", 1, 8}};

// How a type is stored; null for one that cannot be read.
const DTypeInfo* storage_of(uint32_t type) {
  for (const DTypeInfo& row : kIntegerTypes)
    if (static_cast<uint32_t>(row.type) == type) return &row;
  return find_dtype(type);
}

bool is_integer(const DTypeInfo& storage) {
  return &storage >= std::begin(kIntegerTypes) && &storage < std::end(kIntegerTypes);
}

struct Entry {
  TensorInfo info;  // of integers without a type
  const DTypeInfo* storage = nullptr;
  uint64_t bytes = 0;   // of its values
  uint64_t offset = 0;  // from the start of the data section
};

std::string readable_types() {
  std::string names;
  for (const DTypeInfo& info : dtype_table())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", info.name);
  return names;
}

Status unknown_type(const std::string& name, uint32_t type) {
  for (const OtherType& other : kOtherTypes)
    if (other.number == type)
      return unsupported(fmt::format("tensor {} has type {} ({}), which cannot be read: {} can", name, type,
                                     other.name, readable_types()));
  return unsupported(fmt::format("tensor {} has type {}, which is not known", name, type));
}

// The size of a tensor whose view has type and shape, with every product checked. Once the bytes are known to
// be in the file, the number of values, at most 256 for 84 bytes, cannot wrap either.
Result<uint64_t> checked_bytes(const std::string& name, const TensorView& view, const DTypeInfo& type) {
  if (view.shape[0] % type.block_elements != 0)
    return corrupt(fmt::format("tensor {} has rows of {} values, not a multiple of the {} in a {} block",
                               name, view.shape[0], type.block_elements, type.name));
  uint64_t bytes = view.shape[0] / type.block_elements;
  bool overflow = __builtin_mul_overflow(bytes, uint64_t{type.block_bytes}, &bytes);
  for (uint32_t d = 1; d < kMaxDims; ++d) overflow |= __builtin_mul_overflow(bytes, view.shape[d], &bytes);
  if (overflow)
    return corrupt(fmt::format("tensor {} of {} x {} x {} x {} {} values is larger than 2^64", name,
                               view.shape[0], view.shape[1], view.shape[2], view.shape[3], type.name));
  return bytes;
}

Result<Entry> read_entry(ByteCursor& in, uint64_t index) {
  KVASIR_ASSIGN_OR_RETURN(const std::string_view raw,
                          in.read_string(fmt::format("the name of tensor {}", index)));
  if (raw.empty() || raw.size() > kMaxNameBytes)
    return corrupt(fmt::format("the name of tensor {} is {} bytes long, which is outside 1 to {}: {}", index,
                               raw.size(), kMaxNameBytes, quoted(raw)));
  const std::string name = quoted(raw);
  Entry entry;
  entry.info.name = raw;
  uint32_t dims = 0;
  if (!in.read(&dims)) return truncated(in, fmt::format("the dimension count of tensor {}", name));
  if (dims < 1 || dims > kMaxDims)
    return corrupt(
        fmt::format("tensor {} has {} dimensions, which is outside 1 to {}", name, dims, kMaxDims));
  TensorView& view = entry.info.view;
  if (!in.read_array(view.shape.data(), dims))
    return truncated(in, fmt::format("the dimensions of tensor {}", name));
  for (uint32_t d = 0; d < dims; ++d)
    if (view.shape[d] == 0) return corrupt(fmt::format("dimension {} of tensor {} is 0", d, name));
  uint32_t type = 0;
  if (!in.read(&type) || !in.read(&entry.offset))
    return truncated(in, fmt::format("the type and offset of tensor {}", name));
  entry.storage = storage_of(type);
  if (entry.storage == nullptr) return unknown_type(name, type);
  if (!is_integer(*entry.storage)) view.type = entry.storage->type;
  KVASIR_ASSIGN_OR_RETURN(entry.bytes, checked_bytes(name, view, *entry.storage));
  return entry;
}

// The alignment that code reading the values as what they begin with may rely on.
uint64_t natural_alignment(const DTypeInfo& storage) {
  if (storage.type == DType::kF32) return alignof(float);
  return storage.block_bytes % 2 == 0 ? 2 : 1;
}

// Finds the values of `entry` in the file, whose data section starts at `start`.
Status locate(Entry& entry, uint64_t start, uint64_t alignment, std::span<const std::byte> file) {
  const std::string name = quoted(entry.info.name);
  if (entry.offset % alignment != 0)
    return corrupt(fmt::format("tensor {} is at offset {}, not a multiple of the alignment {}", name,
                               entry.offset, alignment));
  uint64_t begin = 0;
  if (__builtin_add_overflow(start, entry.offset, &begin) || begin > file.size() ||
      entry.bytes > file.size() - begin)
    return corrupt(
        fmt::format("tensor {} needs {} bytes at offset {} of the data, which begins at byte {}, but the "
                    "file has {} bytes",
                    name, entry.bytes, entry.offset, start, file.size()));
  const uint64_t natural = natural_alignment(*entry.storage);
  if (begin % natural != 0)
    return corrupt(fmt::format("tensor {} begins at byte {}, not a multiple of {} as {} needs", name, begin,
                               natural, entry.storage->name));
  entry.info.view.data = file.data() + begin;
  return {};
}

Status check_overlap(const std::vector<Entry>& entries) {
  std::vector<const Entry*> order;
  order.reserve(entries.size());
  for (const Entry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const Entry& before = *order[i - 1];
    if (before.bytes > order[i]->offset - before.offset)
      return corrupt(fmt::format("tensor {} ({} bytes at offset {}) overlaps tensor {} at offset {}",
                                 quoted(before.info.name), before.bytes, before.offset,
                                 quoted(order[i]->info.name), order[i]->offset));
  }
  return {};
}

}  // namespace

std::vector<int64_t> IntegerTensor::values() const {
  const size_t width = type == "I32" ? sizeof(int32_t) : sizeof(int64_t);
  std::vector<int64_t> list(bytes.size() / width);
  for (size_t i = 0; i < list.size(); ++i) {
    int32_t narrow = 0;
    void* to = type == "I32" ? static_cast<void*>(&narrow) : &list[i];
    std::memcpy(to, bytes.data() + i * width, width);
    if (type == "I32") list[i] = narrow;
  }
  return list;
}

Result<TensorDirectory> read_tensors(ByteCursor& in, uint64_t count, uint64_t alignment,
                                     std::span<const std::byte> file, uint32_t shard) {
  if (count > in.remaining() / kMinEntryBytes)
    return corrupt(fmt::format("the file claims {} tensors, but {} bytes are left at byte {}", count,
                               in.remaining(), in.position()));
  if (count > kMaxTensors)
    return unsupported(fmt::format("the file has {} tensors: more than {} are refused", count, kMaxTensors));
  std::vector<Entry> entries;
  for (uint64_t i = 0; i < count; ++i) {
    KVASIR_ASSIGN_OR_RETURN(Entry entry, read_entry(in, i));
    entry.info.shard = shard;
    entries.push_back(std::move(entry));
  }
  // A position is below 2^63 and an alignment below 2^32: no sum here can wrap.
  const uint64_t start = (in.position() + alignment - 1) / alignment * alignment;
  for (Entry& entry : entries) KVASIR_RETURN_IF_ERROR(locate(entry, start, alignment, file));
  KVASIR_RETURN_IF_ERROR(check_overlap(entries));
  TensorDirectory directory;
  directory.tensors.reserve(entries.size());
  for (Entry& entry : entries) {
    if (!is_integer(*entry.storage)) {
      directory.tensors.push_back(std::move(entry.info));
      continue;
    }
    const TensorView& view = entry.info.view;
    directory.integers.push_back(
        {std::move(entry.info.name), entry.storage->name, view.shape, {view.data, entry.bytes}});
  }
  return directory;
}

Result<std::vector<uint32_t>> index_by_name(const std::vector<TensorInfo>& tensors,
                                            const std::vector<IntegerTensor>& integers) {
  std::vector<uint32_t> order(tensors.size());  // 2^16 files of kMaxTensors at the most
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return tensors[a].name < tensors[b].name; });
  for (size_t i = 1; i < order.size(); ++i)
    if (tensors[order[i]].name == tensors[order[i - 1]].name)
      return corrupt(fmt::format("tensor {} is there twice", quoted(tensors[order[i]].name)));
  std::set<std::string_view> names;
  for (const IntegerTensor& t : integers) {
    const auto at = std::lower_bound(order.begin(), order.end(), t.name,
                                     [&](uint32_t i, const std::string& n) { return tensors[i].name < n; });
    if (!names.insert(t.name).second || (at != order.end() && tensors[*at].name == t.name))
      return corrupt(fmt::format("tensor {} is there twice", quoted(t.name)));
  }
  return order;
}

}  // namespace kvasir
