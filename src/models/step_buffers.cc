#include "models/step_buffers.h"

#include <algorithm>
#include <functional>

namespace kvasir {

StepBuffers::StepBuffers(const ModelConfig& c, const CausalLm::Limits& limits, uint32_t threads)
    : own_normed_(threads) {
  const size_t rows = limits.max_rows;
  const uint32_t widest = std::max({c.widest_ffn(), c.mixture.ffn_dim, c.hidden_dim});
  tile_floats_ = std::max(rows * kStretchPanels * kPanelCols, size_t{kStretchRows} * (widest + kPanelCols));
  struct Part {
    size_t bytes;
    std::function<void(std::byte*)> place;
  };
  std::vector<Part> parts;
  const auto floats = [&parts](float*& target, size_t count) {
    parts.push_back(
        {count * sizeof(float), [&target](std::byte* at) { target = reinterpret_cast<float*>(at); }});
  };
  const auto quant = [&parts](QuantRows& target, uint32_t count, uint32_t width) {
    parts.push_back({quant_rows_bytes(count, width), [&target, count, width](std::byte* at) {
                       target = carve_quant_rows(at, count, width);
                     }});
  };
  parts.push_back({threads * kScratchBytes, [this](std::byte* at) { scratch_ = at; }});
  floats(x, rows * c.hidden_dim);
  floats(normed.values, rows * c.hidden_dim);
  quant(normed.q, limits.max_rows, c.hidden_dim);
  // Rows that only one part reads are done with when it has computed; those that both read are not.
  const bool read_twice =
      c.block_inputs == BlockInputs::kSharedNorm || c.block_inputs == BlockInputs::kMaybeSharedNorm;
  if (read_twice) floats(branch, rows * c.hidden_dim);
  floats(q, rows * c.q_dim());
  floats(k, rows * c.kv_dim());
  if (!c.mla) floats(v, rows * c.kv_dim());
  floats(attn, rows * c.attn_dim());
  quant(attn_q, limits.max_rows, c.attn_dim());
  if (c.mla) {
    floats(mla.query, rows * c.mla->query);
    quant(mla.query_q, limits.max_rows, c.mla->query);
    floats(mla.raw_q, rows * c.raw_q_dim());
    floats(mla.nope, rows * c.heads * c.mla->nope_dim);
    floats(mla.latent, rows * c.heads * c.mla->latent);
    mla.nope_q.resize(c.heads);
    mla.latent_q.resize(c.heads);
    for (QuantRows& rows_of_head : mla.nope_q) quant(rows_of_head, limits.max_rows, c.mla->nope_dim);
    for (QuantRows& rows_of_head : mla.latent_q) quant(rows_of_head, limits.max_rows, c.mla->latent);
  }
  floats(ffn, rows * c.widest_ffn());
  floats(tiles_, 2 * threads * tile_floats_);
  quant(ffn_q, limits.max_rows, c.widest_ffn());
  floats(rope, 2 * rows * c.rope_dim);
  for (NormedRows& own : own_normed_) {
    floats(own.values, size_t{kOwnRows} * c.hidden_dim);
    quant(own.q, kOwnRows, c.hidden_dim);
  }

  const auto aligned = [](size_t bytes) { return (bytes + 63) / 64 * 64; };
  size_t total = 0;
  for (const Part& part : parts) total += aligned(part.bytes);
  memory_ = AlignedBuffer(total);
  std::byte* at = memory_.data();
  for (const Part& part : parts) {
    part.place(at);
    at += aligned(part.bytes);
  }
  if (!read_twice) branch = normed.values;
}

}  // namespace kvasir
