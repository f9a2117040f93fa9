#include "engine/head_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/mapped_file.h"
#include "gguf/byte_cursor.h"
#include "kernels/quant_codec.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

// GGUF's names of a head's tensors and those of safetensors files.
constexpr std::pair<const char*, const char*> kGgufNames[] = {
    {"fc.weight", "fc.weight"},
    {"enc.output_norm.weight", "input_norm.weight"},
    {"token_embd.weight", "embed_tokens.weight"},
    {"output_norm.weight", "norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"rope_freqs.weight", "rope_freqs.weight"},
    {"blk.0.attn_norm.weight", "midlayer.input_layernorm.weight"},
    {"blk.0.attn_norm_2.weight", "midlayer.hidden_norm.weight"},
    {"blk.0.attn_q.weight", "midlayer.self_attn.q_proj.weight"},
    {"blk.0.attn_k.weight", "midlayer.self_attn.k_proj.weight"},
    {"blk.0.attn_v.weight", "midlayer.self_attn.v_proj.weight"},
    {"blk.0.attn_output.weight", "midlayer.self_attn.o_proj.weight"},
    {"blk.0.ffn_norm.weight", "midlayer.post_attention_layernorm.weight"},
    {"blk.0.ffn_gate.weight", "midlayer.mlp.gate_proj.weight"},
    {"blk.0.ffn_up.weight", "midlayer.mlp.up_proj.weight"},
    {"blk.0.ffn_down.weight", "midlayer.mlp.down_proj.weight"},
};

// False also where the file cannot be read.
bool has_gguf_magic(const std::string& path) {
  constexpr std::string_view kMagic = "GGUF";
  const auto file = MappedFile::open(path);  // which does not wait at a pipe
  return file.ok() && file->bytes().size() >= kMagic.size() &&
         std::memcmp(file->bytes().data(), kMagic.data(), kMagic.size()) == 0;
}

Status pickled(const std::string& file) {
  return unsupported(fmt::format(
      "'{0}' is a PyTorch pickle, which can run code: tools/head_from_pickle.py {0} writes its tensors as "
      "safetensors and runs none",
      file));
}

// The file in a folder; a path that is no folder is itself.
Result<std::string> file_in(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  const fs::path folder(path);
  for (const char* name : {"model.safetensors", "medusa_lm_head.safetensors"})
    if (fs::exists(folder / name, error)) return (folder / name).string();
  if (fs::exists(folder / "model.safetensors.index.json", error))
    return unsupported(fmt::format(
        "'{}': the head is in several files (model.safetensors.index.json); one model.safetensors is read",
        path));
  for (const char* pickle : {"pytorch_model.bin", "medusa_lm_head.pt"})
    if (fs::exists(folder / pickle, error)) return pickled((folder / pickle).string());
  return not_found(fmt::format("'{}' has no model.safetensors and no medusa_lm_head.safetensors", path));
}

Result<std::vector<float>> part_of(const SafeTensor& whole, uint64_t first, uint64_t count) {
  SafeTensor part = whole;
  part.shape = {count};
  part.bytes = whole.bytes.subspan(first * whole.type->bytes, count * whole.type->bytes);
  return float_values(part);
}

// Values [first, first + count), which may begin and end within a storage block.
std::vector<float> part_of(const TensorView& view, uint64_t first, uint64_t count) {
  const DTypeInfo& type = dtype_info(view.type);
  const uint64_t block = first / type.block_elements;
  const uint64_t end = (first + count + type.block_elements - 1) / type.block_elements;
  std::vector<float> values((end - block) * type.block_elements);
  dequantize(view.type, view.data + block * type.block_bytes, values.size(), values.data());
  values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(first % type.block_elements));
  values.resize(count);
  return values;
}

// Row `row` of q or k as safetensors files have them, in a file whose rows turn neighbouring values: heads
// begin with the first values of all pairs, and then have the second ones.
uint64_t interleaved_row(uint64_t row, uint64_t head_dim) {
  const uint64_t in_head = row % head_dim, half = head_dim / 2;
  return row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
}

std::vector<float> unturned(const TensorView& view, uint64_t head_dim, uint64_t first, uint64_t count) {
  const uint64_t width = view.shape[0];
  std::vector<float> values;
  values.reserve(count);
  for (uint64_t at = first; at < first + count;) {
    const uint64_t column = at % width, n = std::min(width - column, first + count - at);
    const std::vector<float> row = part_of(view, interleaved_row(at / width, head_dim) * width + column, n);
    values.insert(values.end(), row.begin(), row.end());
    at += n;
  }
  return values;
}

std::vector<uint64_t> row_major(const std::array<uint64_t, 4>& shape) {
  std::vector<uint64_t> out(shape.rbegin(), shape.rend());
  while (out.size() > 1 && out.front() == 1) out.erase(out.begin());
  return out;
}

}  // namespace

uint64_t HeadTensor::elements() const {
  uint64_t count = 1;
  for (const uint64_t n : shape) count *= n;
  return count;
}

const HeadTensor* HeadFile::find(std::string_view name) const {
  const auto it =
      std::find_if(tensors_.begin(), tensors_.end(), [name](const HeadTensor& t) { return t.name == name; });
  return it == tensors_.end() ? nullptr : &*it;
}

Result<HeadFile> HeadFile::open(const std::string& path) {
  KVASIR_ASSIGN_OR_RETURN(const std::string file, file_in(path));
  if (has_gguf_magic(file)) return open_gguf(file);
  const std::string extension = fs::path(file).extension().string();
  std::error_code error;
  if (fs::exists(file, error) && (extension == ".pt" || extension == ".bin" || extension == ".pth"))
    return pickled(file);
  return open_safetensors(file);
}

Result<HeadFile> HeadFile::open_safetensors(const std::string& path) {
  HeadFile head;
  head.path_ = path;
  KVASIR_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::open(path));
  head.safetensors_ = std::make_unique<SafetensorsFile>(std::move(opened));
  KVASIR_ASSIGN_OR_RETURN(head.config_, HeadConfig::read(*head.safetensors_));
  for (const SafeTensor& t : head.safetensors_->tensors()) {
    const SafeTensor* tensor = &t;
    head.tensors_.push_back(
        {t.name, t.name, t.shape,
         [tensor](uint64_t first, uint64_t count) { return part_of(*tensor, first, count); },
         [tensor] { return integer_values(*tensor); }});
  }
  return head;
}

Result<HeadFile> HeadFile::open_gguf(const std::string& path) {
  HeadFile head;
  head.path_ = path;
  KVASIR_ASSIGN_OR_RETURN(GgufFile opened, GgufFile::open(path));
  head.gguf_ = std::make_unique<GgufFile>(std::move(opened));
  const auto failed = [&path](const Status& status) {
    return Status(status.code(), fmt::format("'{}': {}", path, status.message()));
  };
  const auto architecture = head.gguf_->metadata().require_string("general.architecture");
  if (!architecture.ok()) return failed(architecture.status());
  if (*architecture != "eagle3")
    return failed(unsupported(
        fmt::format("general.architecture is {}: heads are of 'eagle3'; a model of its own drafts as "
                    "draft=FILE",
                    kvasir::quoted(*architecture))));
  auto config = HeadConfig::read(head.gguf_->metadata());
  if (!config.ok()) return failed(config.status());
  head.config_ = std::move(config).value();
  if (const Status status = head.add_gguf_tensors(); !status.ok()) return failed(status);
  return head;
}

Status HeadFile::add_gguf_matrix(const TensorInfo& tensor, const std::string& name) {
  const TensorView* view = &tensor.view;
  const bool turns = name.ends_with(".q_proj.weight") || name.ends_with(".k_proj.weight");
  const double given = config_.number("head_dim").value_or(0);
  const auto head_dim = given >= 2 && given <= 65536 ? static_cast<uint64_t>(given) : 0;
  if (turns && (head_dim % 2 != 0 || head_dim == 0 || view->shape[1] % head_dim != 0))
    return corrupt(fmt::format("tensor {} has {} rows, and heads have {} values", kvasir::quoted(tensor.name),
                               view->shape[1], given));
  HeadTensor t{name, tensor.name, row_major(view->shape), {}, {}};
  t.floats = [view, turns, head_dim](uint64_t first, uint64_t count) {
    return Result(turns ? unturned(*view, head_dim, first, count) : part_of(*view, first, count));
  };
  t.integers = [label = tensor.name, type = view->type] {
    return Result<std::vector<int64_t>>(unsupported(fmt::format(
        "tensor {} is of type {}; whole numbers are needed", kvasir::quoted(label), dtype_info(type).name)));
  };
  tensors_.push_back(std::move(t));
  return {};
}

Status HeadFile::add_gguf_tensors() {
  for (const TensorInfo& tensor : gguf_->tensors()) {
    const auto known = std::find_if(std::begin(kGgufNames), std::end(kGgufNames),
                                    [&](const auto& row) { return tensor.name == row.first; });
    const std::string name = known == std::end(kGgufNames) ? tensor.name : known->second;
    KVASIR_RETURN_IF_ERROR(add_gguf_matrix(tensor, name));
  }
  for (const IntegerTensor& tensor : gguf_->integers()) {
    HeadTensor t{tensor.name, tensor.name, row_major(tensor.shape), {}, {}};
    t.floats = [label = tensor.name, type = tensor.type](uint64_t, uint64_t) {
      return Result<std::vector<float>>(unsupported(fmt::format(
          "tensor {} is of type {}; numbers with fractions are needed", kvasir::quoted(label), type)));
    };
    t.integers = [source = &tensor, offsets = tensor.name == "d2t"] {
      std::vector<int64_t> values = source->values();
      for (size_t i = 0; offsets && i < values.size(); ++i) {
        if (__builtin_sub_overflow(values[i], static_cast<int64_t>(i), &values[i])) values[i] = INT64_MIN;
      }
      return Result(std::move(values));
    };
    tensors_.push_back(std::move(t));
  }
  return {};
}

}  // namespace kvasir
