#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "engine/request.h"
#include "kernels/table.h"
#include "kvcache/kv_layout.h"
#include "models/causal_lm.h"
#include "tokenizer/text_assembler.h"
#include "tokenizer/tokenizer.h"

namespace kvasir {

// For the engine's tests: a model that is nothing but its KV. Like a transformer, a layer stores one value
// per position and mixes all values that the position sees, read back through the block tables; logits are a
// hash of the last layer's mix. So a wrong table, a stale block or a missed copy changes every token after
// it.
namespace fake {

inline uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a ^ (b + 0x9E3779B97F4A7C15ull + (a << 6) + (a >> 2));
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

inline uint64_t embed(TokenId token, uint32_t position) {
  return mix(static_cast<uint64_t>(token) + 1, position);
}

inline void write_logits(uint64_t hidden, std::span<float> out) {
  for (size_t v = 0; v < out.size(); ++v)
    out[v] = static_cast<float>(mix(hidden, v) >> 40) * 0x1p-22f;  // 0 to 4
}

// What a slot holds.
struct Slot {
  uint64_t value;
  uint32_t position;
  uint32_t layer;
};

}  // namespace fake

class FakeLm final : public CausalLm {
 public:
  struct Options {
    uint32_t vocab = 48;
    uint32_t context = 2048;
    std::vector<uint32_t> windows = {0, 0};  // one per layer
    TokenId poison = kNoToken;               // a row of this token has NaN logits
    uint32_t astray = 0;                     // of 100 rows, how many have the logits of another model
  };
  explicit FakeLm(const Options& options) : options_(options) {
    config_.vocab_size = options.vocab;
    config_.context_length = options.context;
    config_.layers = static_cast<uint32_t>(options.windows.size());
    config_.windows = options.windows;
    config_.hidden_dim = 2;
    config_.kv_heads = 1;
    config_.head_dim = sizeof(fake::Slot) / 4;  // K and V of two bytes a value
  }

  const ModelConfig& config() const override { return config_; }
  size_t weight_bytes() const override { return 0; }

  void forward(const ForwardBatch& batch, KvStore& kv, std::span<float> logits,
               std::span<BestLogits> best) override {
    if (before_forward) before_forward();
    ++steps;
    rows += batch.tokens.size();
    hidden_.assign(batch.tokens.size(), 0);
    for (size_t r = 0; r < batch.tokens.size(); ++r)
      hidden_[r] = fake::embed(batch.tokens[r], static_cast<uint32_t>(batch.positions[r]));
    for (uint32_t l = 0; l < config_.layers; ++l) {
      if (batch.layers.empty() ||
          std::find(batch.layers.begin(), batch.layers.end(), l) != batch.layers.end())
        run_layer(l, batch, kv);
    }
    for (size_t i = 0; i < batch.hidden.rows.size(); ++i) {
      for (size_t p = 0; p < batch.hidden.points.size(); ++p)
        write_hidden(hidden_[batch.hidden.rows[i]],
                     batch.hidden.out + 2 * (i * batch.hidden.points.size() + p));
    }
    const uint32_t head = batch.head_tokens == 0 ? config_.vocab_size : batch.head_tokens;
    std::vector<float> out(config_.vocab_size);
    for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
      const uint32_t row = batch.logit_rows[i];
      const bool astray = fake::mix(hidden_[row], 1) % 100 < options_.astray;
      fake::write_logits(astray ? ~hidden_[row] : hidden_[row], out);
      if (batch.tokens[row] == options_.poison) out[out.size() / 2] = std::numeric_limits<float>::quiet_NaN();
      if (batch.wanted(i) == kAllLogits) {
        std::copy_n(out.begin(), head, logits.begin());
        logits = logits.subspan(config_.vocab_size);
        continue;
      }
      best[i].start(batch.wanted(i));
      best[i].add(out.data(), head, 0, kernel_table(best_isa()));
    }
  }

  // Its hidden state, of width two: halves of the row's mix, whatever the point.
  static void write_hidden(uint64_t hidden, float* out) {
    out[0] = static_cast<float>(hidden >> 40);
    out[1] = static_cast<float>(hidden & 0xFFFFFF);
  }
  void read_embedding(TokenId token, float* out) const override { write_hidden(fake::embed(token, 0), out); }
  void read_head_row(TokenId token, float* out) const override { read_embedding(token, out); }

  std::function<void()> before_forward;
  uint64_t steps = 0;
  uint64_t rows = 0;
  uint64_t faults = 0;  // slots read that held another position or layer

 private:
  fake::Slot* slot(const ForwardBatch::Sequence& s, KvStore& kv, uint32_t layer, uint32_t position) const {
    const KvLayout::Layer& place = kv.layout().layer(layer);
    const uint32_t units = kv.layout().groups()[place.group].units;
    const uint32_t size = kv.layout().block_size();
    const BlockId id = s.tables[place.group][position / size * units + place.unit];
    CHECK(index_of(id) < kv.blocks());
    return reinterpret_cast<fake::Slot*>(kv.block(id) + place.offset_bytes) + position % size;
  }

  void run_layer(uint32_t layer, const ForwardBatch& batch, KvStore& kv) {
    for (const ForwardBatch::Sequence& s : batch.sequences) {
      for (uint32_t r = s.first_row; r < s.first_row + s.rows; ++r) {
        const uint32_t p = static_cast<uint32_t>(batch.positions[r]);
        *slot(s, kv, layer, p) = {hidden_[r], p, layer};
      }
    }
    for (const ForwardBatch::Sequence& s : batch.sequences) {
      for (uint32_t r = s.first_row; r < s.first_row + s.rows; ++r) {
        const uint32_t p = static_cast<uint32_t>(batch.positions[r]);
        uint64_t h = layer;
        for (uint32_t q = first_visible(options_.windows[layer], p); q <= p; ++q) {
          const fake::Slot& seen = *slot(s, kv, layer, q);
          faults += seen.position != q || seen.layer != layer;
          h = fake::mix(h, seen.value);
        }
        hidden_[r] = h;
      }
    }
  }

  Options options_;
  ModelConfig config_;
  std::vector<uint64_t> hidden_;
};

// Token 0 ends a text and is a control token; the others are "a" to "z" and then two letters each.
class FakeTokenizer final : public Tokenizer {
 public:
  explicit FakeTokenizer(uint32_t vocab) {
    for (uint32_t i = 0; i < vocab; ++i) {
      texts_.append(i == 0 ? "</s>" : spell(i - 1));
      kinds_.push_back(i == 0 ? TokenKind::kControl : TokenKind::kNormal);
    }
    eos_ = 0;
    end_tokens_ = {0};
  }
  std::vector<TokenId> encode(std::string_view, EncodeOptions) const override { return {}; }
  std::vector<TokenId> encode_parts(std::span<const Part>, bool) const override { return {}; }
  std::string_view token_bytes(TokenId id, bool special) const override {
    if (!in_vocab(id) || (kind(id) == TokenKind::kControl && !special)) return {};
    return texts_[id];
  }
  bool strips_leading_space() const override { return false; }

 private:
  static std::string spell(uint32_t i) {
    std::string s(1, static_cast<char>('a' + i % 26));
    if (i >= 26) s += static_cast<char>('a' + i / 26);
    return s;
  }
};

// What an answer must be, computed without engine, blocks or batches.
struct Expected {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  std::string text;
  FinishReason finish = FinishReason::kNone;
};

inline Expected expected_answer(const Request& request, uint32_t choice, const FakeLm::Options& model,
                                const Tokenizer& tokenizer, uint32_t max_model_len) {
  const SamplingParams& params = request.sampling;
  Sampler sampler(params, choice, model.vocab, tokenizer.end_tokens(), kernel_table(best_isa()));
  sampler.observe_prompt(request.prompt);
  TextAssembler assembler(tokenizer, {request.stop, request.include_stop, request.special_text});
  SamplerScratch scratch;
  std::vector<std::vector<uint64_t>> values(model.windows.size());
  std::vector<float> logits(model.vocab);
  std::vector<TokenId> known = request.prompt;
  Expected out;
  for (uint32_t p = 0; out.finish == FinishReason::kNone; ++p) {
    uint64_t h = fake::embed(known[p], p);
    for (uint32_t l = 0; l < model.windows.size(); ++l) {
      values[l].push_back(h);
      h = l;
      for (uint32_t q = first_visible(model.windows[l], p); q <= p; ++q) h = fake::mix(h, values[l][q]);
    }
    if (p + 1 < known.size()) continue;
    fake::write_logits(h, logits);
    const uint32_t count = static_cast<uint32_t>(out.tokens.size());
    const SampledToken t =
        sampler.sample(logits, static_cast<uint32_t>(known.size()), count, scratch).value();
    known.push_back(t.token);
    out.tokens.push_back(t.token);
    out.logprobs.push_back(t.logprob);
    sampler.observe_output(t.token);
    const bool stop_id = std::find(params.stop_token_ids.begin(), params.stop_token_ids.end(), t.token) !=
                         params.stop_token_ids.end();
    const bool end = t.token == tokenizer.eos() || stop_id;
    if (!end && assembler.push(t.token, &out.text) >= 0) {
      out.finish = FinishReason::kStop;
      break;
    }
    if (end)
      out.finish = FinishReason::kStop;
    else if (out.tokens.size() >= params.max_tokens || known.size() >= max_model_len)
      out.finish = FinishReason::kLength;
    if (out.finish != FinishReason::kNone) assembler.finish(&out.text);
  }
  return out;
}

}  // namespace kvasir
