#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tokenizer/text_assembler.h"
#include "tokenizer/tokenizer.h"

namespace kvasir::testing {

// One token per byte, and three control tokens.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kStart = 256, kEnd = 257, kBegin = 258;

  ByteTokenizer() {
    for (int b = 0; b < 256; ++b) add(std::string(1, static_cast<char>(b)), TokenKind::kNormal);
    add("<|im_start|>", TokenKind::kControl);
    add("<|im_end|>", TokenKind::kControl);
    add("<s>", TokenKind::kControl);
    bos_ = kBegin;
    eos_ = kEnd;
    end_tokens_ = {kEnd};
    model_ = "bytes";
  }
  void set_add_bos(bool add) { add_bos_ = add; }

  std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const override {
    const Part part{text, options.parse_special};
    return encode_parts({&part, 1}, options.add_special);
  }
  std::vector<TokenId> encode_parts(std::span<const Part> parts, bool add_special) const override {
    std::vector<TokenId> ids;
    if (add_special && add_bos_) ids.push_back(bos_);
    for (const Part& part : parts) {
      for (size_t at = 0; at < part.text.size();) {
        const TokenId control = part.parse_special ? control_at(part.text.substr(at)) : kNoToken;
        ids.push_back(control != kNoToken ? control : static_cast<uint8_t>(part.text[at]));
        at += control != kNoToken ? token_text(control).size() : 1;
      }
    }
    return ids;
  }
  std::string_view token_bytes(TokenId id, bool special) const override {
    if (!in_vocab(id) || (kind(id) == TokenKind::kControl && !special)) return {};
    return token_text(id);
  }
  bool strips_leading_space() const override { return false; }

 private:
  void add(std::string_view text, TokenKind kind) {
    texts_.append(text);
    kinds_.push_back(kind);
  }
  TokenId control_at(std::string_view text) const {
    for (const TokenId id : {kStart, kEnd, kBegin}) {
      if (text.starts_with(token_text(id))) return id;
    }
    return kNoToken;
  }
};

// An engine that says what a test tells it to, one byte per token and step, for every choice of every request
// at once.
class FakeEngine final : public Engine {
 public:
  using Answer = std::function<std::string(const Request& request, uint32_t choice)>;

  explicit FakeEngine(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    limits.max_model_len = 1000;
    answer = [](const Request&, uint32_t) { return "Hello there!"; };
    thread_ = std::thread([this] { run(); });
  }
  ~FakeEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  Result<RequestId> submit(Request request, TokenSink sink) override {
    const std::lock_guard lock(mutex_);
    if (!refusal.ok()) return refusal;
    if (active_.size() >= max_requests) return resource_exhausted("the queue is full");
    const RequestId id{next_id_++};
    Active active{std::move(request), std::move(sink), {}};
    for (uint32_t c = 0; c < active.request.n; ++c) {
      TextAssembler::Options options{active.request.stop, active.request.include_stop,
                                     active.request.special_text};
      active.choices.push_back({answer(active.request, c), 0, TextAssembler(tokenizer_, options), false});
    }
    last_request = active.request;
    ++submitted;
    active_.emplace(id, std::move(active));
    wake_.notify_all();
    return id;
  }
  void cancel(RequestId id) override {
    const std::lock_guard lock(mutex_);
    const auto found = active_.find(id);
    if (found == active_.end()) return;
    ++cancelled;
    found->second.cancelled = true;
    wake_.notify_all();
  }
  void drain() override {}
  bool drained() const override { return running() == 0; }
  EngineStats stats() const override {
    EngineStats stats;
    stats.running = static_cast<uint32_t>(running());
    stats.blocks_total = 100;
    stats.blocks_used = 25;
    stats.prefix_queries = 40;
    stats.prefix_hits = 10;
    stats.stalls_seen = 2;
    stats.stalls_resolved = 3;
    stats.persistence.enabled = true;
    stats.persistence.restored_tokens = 640;
    stats.persistence.saved_bytes = 4096;
    stats.time_to_first_token = {{0.1, 1.0}, {3, 2, 1}, 4.5};
    stats.queue_seconds = queue_seconds;
    stats.queue.by_class = {1, 2, 3};
    stats.refused_user = 4;
    stats.speculation.drafters = {
        {.name = "ngram", .drafts = 5, .whole = 1, .drafted = 20, .accepted = 9, .accepted_at = {4, 3, 2}}};
    stats.speculation.drafters[0].off = {11, 12, 13, 14, 15};
    stats.speculation.without_draft = {21, 22, 23, 24, 0};
    stats.speculation.predicted_gain = 1.25;
    stats.speculation.saved_seconds = -0.5;
    stats.forecast = {.steps = 4,
                      .predicted_seconds = 1.5,
                      .measured_seconds = 2,
                      .error = {{0.1}, {3, 1}, 0.75},
                      .recent = {.count = 4, .median = 0.0625, .p90 = 0.25, .bias = -0.125},
                      .factors = {2, 1, 1, 0.5}};
    return stats;
  }
  Status health() const override {
    return stalled ? unavailable("the engine has not moved for 99 s") : Status();
  }
  const EngineConfig& config() const override { return limits; }
  uint64_t kv_token_capacity() const override { return 4096; }

  size_t running() const {
    const std::lock_guard lock(mutex_);
    return active_.size();
  }

  // Set these before requests come.
  Answer answer;
  EngineConfig limits;  // what config() says
  size_t max_requests = 100;
  Status refusal;  // of every request, if it is an error
  double queue_seconds = 0;
  DraftCounts drafting;  // of each answer, from its first event on
  std::atomic<int> step_ms{0};
  std::atomic<bool> stalled{false};  // what health() says
  std::atomic<bool> fail{false};     // the next step of every request is an error
  std::atomic<int> submitted{0}, cancelled{0};
  Request last_request;

 private:
  struct Choice {
    std::string text;
    uint32_t sent;
    TextAssembler assembler;
    bool finished;
  };
  struct Active {
    Request request;
    TokenSink sink;
    std::vector<Choice> choices;
    bool cancelled = false;
    bool prompt_scored = false;
  };

  static SampledToken scored(TokenId token, int32_t top) {
    SampledToken sampled;
    sampled.token = token;
    sampled.logprob = -0.25f * static_cast<float>(token % 5);
    for (int32_t i = 0; i < top; ++i)
      sampled.top.push_back({(token + i) % 256, sampled.logprob - static_cast<float>(i)});
    return sampled;
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      wake_.wait(lock, [&] { return stopping_ || !active_.empty(); });
      for (auto it = active_.begin(); it != active_.end();) {
        step(it->second);
        it = done(it->second) ? active_.erase(it) : std::next(it);
      }
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(step_ms));
      lock.lock();
    }
  }
  static bool done(const Active& a) {
    return std::all_of(a.choices.begin(), a.choices.end(), [](const Choice& c) { return c.finished; });
  }
  void step(Active& a) {
    if (a.request.prompt_logprobs >= 0 && !std::exchange(a.prompt_scored, true)) {
      std::vector<SampledToken> scores;
      for (size_t i = 1; i < a.request.prompt.size(); ++i) {
        scores.push_back(scored(a.request.prompt[i], a.request.prompt_logprobs));
      }
      a.request.prompt_logprobs_sink(std::move(scores));
    }
    for (uint32_t c = 0; c < a.choices.size(); ++c) {
      if (!a.choices[c].finished) a.sink(next_event(a, c));
    }
  }
  TokenEvent next_event(Active& a, uint32_t c) {
    Choice& choice = a.choices[c];
    TokenEvent event;
    event.choice = c;
    event.prompt_tokens = static_cast<uint32_t>(a.request.prompt.size());
    event.cached_tokens = 3;
    event.drafting = drafting;
    if (a.cancelled || fail) {
      choice.finished = true;
      event.finish = a.cancelled ? FinishReason::kCancelled : FinishReason::kError;
      event.error = internal_error("the logits hold a NaN");
      return event;
    }
    if (a.request.sampling.max_tokens == 0) {
      choice.finished = true;
      event.finish = FinishReason::kLength;
      return event;
    }
    const bool at_end = choice.sent == choice.text.size();
    const TokenId token = at_end ? ByteTokenizer::kEnd : static_cast<uint8_t>(choice.text[choice.sent]);
    event.tokens = {token};
    event.output_tokens = ++choice.sent;
    if (a.request.sampling.logprobs >= 0) event.logprobs = {scored(token, a.request.sampling.logprobs)};
    if (at_end) {
      choice.assembler.finish(&event.text);
      event.finish = FinishReason::kStop;
    } else if (const int stop = choice.assembler.push(token, &event.text); stop >= 0) {
      event.finish = FinishReason::kStop;
      event.stop_string = a.request.stop[static_cast<size_t>(stop)];
    } else if (choice.sent == a.request.sampling.max_tokens) {
      choice.assembler.finish(&event.text);
      event.finish = FinishReason::kLength;
    }
    choice.finished = event.finish != FinishReason::kNone;
    return event;
  }

  const Tokenizer& tokenizer_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<RequestId, Active> active_;
  uint64_t next_id_ = 1;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kvasir::testing
