#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/draft_model.h"
#include "engine/engine.h"
#include "engine/memory_plan.h"
#include "engine/request.h"
#include "kernels/table.h"
#include "kvcache/kv_layout.h"
#include "models/causal_lm.h"
#include "models/weight_sizes.h"
#include "perf/hardware_profile.h"
#include "tokenizer/tokenizer.h"

namespace kvasir {

// A GGUF file, ready to generate: the model, its tokenizer and an engine, behind blocking calls. The text
// interface for `kvasir run`, tests and benchmarks; servers use engine() directly.
class Llm {
 public:
  struct Options {
    uint32_t threads = 0;    // 0: as many CPUs as the process may use
    std::optional<Isa> isa;  // none: the best this machine has
    // kv_bytes 0: chosen from the machine's free memory (engine/memory_plan.h). max_model_len 0: the model's
    // context, as far as that memory reaches.
    EngineConfig engine;
    // Where cached prefixes are kept over restarts (Engine::start); "": nowhere. One open model holds a
    // directory.
    std::string kv_directory;
    CausalLm::Progress progress;
    // Asked once, when the model is there, what the machine can do with its formats, for the engine to
    // predict its steps from; where it is empty or fails, the engine predicts nothing.
    MachineSource machine;
  };

  // Errors: a file that cannot be read or run, an instruction set that is not there, too little memory.
  static Result<std::unique_ptr<Llm>> open(const std::string& path, const Options& options);
  ~Llm();

  struct Completion {
    std::vector<TokenId> tokens;
    std::vector<SampledToken> logprobs;
    std::string text;
    FinishReason finish = FinishReason::kNone;
    std::optional<std::string> stop_string;
    std::optional<TokenId> stop_token;
    uint32_t prompt_tokens = 0;
    uint32_t cached_tokens = 0;
  };
  struct Answer {
    std::vector<Completion> choices;            // n of them
    std::vector<SampledToken> prompt_logprobs;  // where the request asked for them
  };
  // Called on the engine's thread with each event, before it is added to the answer; see TokenSink.
  using OnEvent = std::function<void(const TokenEvent&)>;

  // Runs one request and waits for its end. Thread-safe. Errors: the request is refused, or a choice ended in
  // an error.
  Result<Answer> generate(Request request, const OnEvent& on_event = {});
  // The same for text, encoded with the file's BOS rule and without control tokens. With n = 1.
  Result<Completion> complete(std::string_view prompt, const SamplingParams& sampling,
                              const OnEvent& on_event = {});

  // The size of the KV pool and why; and how many sequences of so many tokens fit it at once.
  const KvPoolPlan& kv_pool() const { return kv_pool_; }
  uint64_t sequences_of(uint64_t tokens) const;

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  CausalLm& model() { return *model_; }
  Engine& engine() { return *engine_; }
  // A further engine over the same model, with drafters and predictions of its own. The model runs one step
  // at a time: only one of the engines may have work. It ends before this object does. `more` are drafters
  // beside those that the configuration names. Errors are those of open().
  Result<std::unique_ptr<Engine>> start_engine(EngineConfig config,
                                               std::vector<std::unique_ptr<Drafter>> more = {});
  // What make_drafters() needs for such an engine.
  DraftGround draft_ground();
  ThreadPool& pool() { return *pool_; }
  const KernelTable& kernels() const { return *kernels_; }

 private:
  Llm() = default;
  Status load(const std::string& path, const Options& options, EngineConfig* config);
  Result<KvPoolPlan> size_pool(EngineConfig* config) const;
  Result<std::unique_ptr<Engine>> make_engine(const EngineConfig& config,
                                              std::unique_ptr<KvDirectory> directory,
                                              std::vector<std::unique_ptr<Drafter>> more = {});

  const KernelTable* kernels_ = nullptr;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<CausalLm> model_;
  std::optional<PricedModel> priced_;  // what steps are predicted from
  MachineSource machine_;
  std::vector<DraftModel> drafts_;  // that drafters have loaded
  std::optional<KvLayout> layout_;
  KvPoolPlan kv_pool_;
  std::unique_ptr<Engine> engine_;  // ends first
};

}  // namespace kvasir
