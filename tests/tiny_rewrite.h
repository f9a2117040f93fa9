#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "gguf/gguf_builder.h"
#include "gguf/gguf_file.h"
#include "kernels/quant_codec.h"
#include "models/model_config.h"
#include "tests/crude_quantizer.h"

namespace kvasir {

// A copy of a file of F32 tensors with other tensors.
struct Rewritten {
  std::vector<std::byte> bytes;
  uint32_t matrices = 0;  // that are in the format
};

inline void copy_pair(GgufBuilder& out, const std::string& key, const GgufMetadata::Value& value) {
  ByteWriter w;
  if (const auto* number = std::get_if<int64_t>(&value)) out.pair(key, 11, w.put(*number));
  if (const auto* real = std::get_if<double>(&value)) out.pair(key, 12, w.put(*real));
  if (const auto* flag = std::get_if<bool>(&value)) out.pair(key, 7, w.put(static_cast<uint8_t>(*flag)));
  if (const auto* text = std::get_if<std::string>(&value)) out.string(key, *text);
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) out.strings(key, *texts);
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(&value)) {
    w.put(uint32_t{11}).put(uint64_t{numbers->size()});
    for (const int64_t n : *numbers) w.put(n);
    out.pair(key, 9, w);
  }
  if (const auto* flags = std::get_if<std::vector<bool>>(&value)) {
    w.put(uint32_t{7}).put(uint64_t{flags->size()});
    for (const bool f : *flags) w.put(static_cast<uint8_t>(f));
    out.pair(key, 9, w);
  }
}

// As a file lists them: without the last ones that are 1.
inline std::vector<uint64_t> dims_of(uint64_t columns, uint64_t rows, uint64_t matrices) {
  if (matrices > 1) return {columns, rows, matrices};
  return rows > 1 ? std::vector<uint64_t>{columns, rows} : std::vector<uint64_t>{columns};
}

// The same file with one tensor left out, or with one more row in it.
enum class Damage { kMissing, kMisshapen };
inline std::vector<std::byte> damaged(const GgufFile& file, const std::string& tensor, Damage damage) {
  GgufBuilder out;
  for (const auto& [key, value] : file.metadata().entries()) copy_pair(out, key, value);
  for (const TensorInfo& t : file.tensors()) {
    const bool chosen = t.name == tensor;
    if (chosen && damage == Damage::kMissing) continue;
    const auto& shape = t.view.shape;
    const uint64_t rows = shape[1] + (chosen ? 1 : 0);
    std::vector<std::byte> data(t.view.data, t.view.data + t.view.bytes());
    data.resize(t.view.row_bytes() * rows * shape[2]);
    const std::vector<uint64_t> dims = dims_of(shape[0], rows, shape[2]);
    out.tensor(t.name, static_cast<uint32_t>(t.view.type), dims, data);
  }
  return out.build();
}

// The same file with each head's matrices out of the latent on their own, that of the keys transposed, in
// place of one with the rows of both.
inline std::vector<std::byte> with_split_latents(const GgufFile& file, const ModelConfig& config) {
  GgufBuilder out;
  for (const auto& [key, value] : file.metadata().entries()) copy_pair(out, key, value);
  for (const TensorInfo& t : file.tensors()) {
    const auto& shape = t.view.shape;
    const auto type = static_cast<uint32_t>(t.view.type);
    const size_t at = t.name.find("attn_kv_b");
    if (at == std::string::npos) {
      out.tensor(t.name, type, dims_of(shape[0], shape[1], shape[2]),
                 {t.view.data, t.view.data + t.view.bytes()});
      continue;
    }
    const uint64_t heads = config.heads, latent = shape[0];
    const uint64_t nope = config.mla->nope_dim, value = config.mla->value_dim;
    const auto* both = reinterpret_cast<const float*>(t.view.data);
    std::vector<float> keys, values;
    for (uint64_t h = 0; h < heads; ++h) {
      const float* head = both + h * (nope + value) * latent;
      for (uint64_t i = 0; i < latent * nope; ++i) keys.push_back(head[i % nope * latent + i / nope]);
      values.insert(values.end(), head + nope * latent, head + (nope + value) * latent);
    }
    const auto add = [&](const char* part, const std::vector<uint64_t>& dims, const std::vector<float>& x) {
      std::vector<std::byte> data(x.size() * sizeof(float));
      std::memcpy(data.data(), x.data(), data.size());
      out.tensor(t.name.substr(0, at) + part + ".weight", type, dims, data);
    };
    add("attn_k_b", {nope, latent, heads}, keys);
    add("attn_v_b", {latent, value, heads}, values);
  }
  return out.build();
}

// How rewrite() stores what it puts into a format.
enum class Stored {
  kFormat,  // as blocks of the format
  kFloats,  // as the F32 numbers that those blocks stand for
  // The same, and what is not put into the format as F16, which holds the small models' weights exactly: only
  // what the format rounds is F32.
  kMarkedFloats,
};

// Puts every matrix of a layer, and the output head, into a format, if its rows are whole blocks.
inline Rewritten rewrite(const GgufFile& file, DType type, Stored stored) {
  const DTypeInfo& info = dtype_info(type);
  CrudeQuantizer quantize(type), half(DType::kF16);
  GgufBuilder out;
  Rewritten result;
  for (const auto& [key, value] : file.metadata().entries()) copy_pair(out, key, value);
  for (const TensorInfo& t : file.tensors()) {
    const auto& shape = t.view.shape;
    const std::vector<uint64_t> dims = dims_of(shape[0], shape[1], shape[2]);
    std::vector<std::byte> data(t.view.data, t.view.data + t.view.bytes());
    std::vector<float> values(t.view.elements());
    std::memcpy(values.data(), data.data(), data.size());
    // Tables of norms and biases are not matrices, and routers are never quantised.
    const bool router = t.name.find("ffn_gate_inp") != std::string::npos && t.name.ends_with(".weight");
    const bool matrix =
        shape[1] > 1 && t.name.find("_norm") == std::string::npos && !t.name.ends_with(".bias") && !router;
    if (!matrix || shape[0] % info.block_elements != 0) {
      const bool marked = stored == Stored::kMarkedFloats && (matrix || router);
      out.tensor(t.name, static_cast<uint32_t>(marked ? DType::kF16 : t.view.type), dims,
                 marked ? half(values) : data);
      continue;
    }
    ++result.matrices;
    data = quantize(values);
    if (stored != Stored::kFormat) {
      dequantize(type, data.data(), values.size(), values.data());
      data.resize(values.size() * sizeof(float));
      std::memcpy(data.data(), values.data(), data.size());
    }
    out.tensor(t.name, static_cast<uint32_t>(stored == Stored::kFormat ? type : DType::kF32), dims, data);
  }
  result.bytes = out.build();
  return result;
}

}  // namespace kvasir
