#include "engine/llm.h"

#include <fmt/format.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <condition_variable>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "engine/drafters.h"
#include "gguf/fingerprint.h"
#include "gguf/gguf_file.h"
#include "kvcache/kv_directory.h"

namespace kvasir {
namespace {

// What the engine's thread fills in while the caller waits.
struct Collector {
  std::mutex mutex;
  std::condition_variable done;
  Llm::Answer answer;
  Status error;
  uint32_t unfinished = 0;

  void take(TokenEvent&& event) {
    const std::lock_guard lock(mutex);
    Llm::Completion& c = answer.choices[event.choice];
    c.tokens.insert(c.tokens.end(), event.tokens.begin(), event.tokens.end());
    for (SampledToken& t : event.logprobs) c.logprobs.push_back(std::move(t));
    c.text += event.text;
    c.prompt_tokens = event.prompt_tokens;
    c.cached_tokens = event.cached_tokens;
    if (event.finish == FinishReason::kNone) return;
    c.finish = event.finish;
    c.stop_string = std::move(event.stop_string);
    c.stop_token = event.stop_token;
    if (event.finish == FinishReason::kError) error = event.error;
    if (--unfinished == 0) done.notify_one();
  }
};

Result<const KernelTable*> choose_kernels(std::optional<Isa> isa) {
  if (isa && !isa_supported(*isa))
    return unsupported(fmt::format("this machine does not have the instruction set {}", isa_name(*isa)));
  return &kernel_table(isa.value_or(best_isa()));
}

// What reading a file needed for a while, the allocator would keep: tens of megabytes for a large vocabulary.
void give_back_free_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

// What the process will take beside the pool, as far as it is not resident when the pool is sized: logits and
// scratch, which a first step touches, and for the heap, connections and threads a sum that soaks stay under.
uint64_t reserved_bytes(const CausalLm& model, const EngineConfig& config) {
  constexpr uint64_t kProcess = uint64_t{48} << 20;
  const uint64_t logits =
      uint64_t{model_limits(config).max_logit_rows} * model.config().vocab_size * sizeof(float);
  return kProcess + logits + model.scratch_bytes();
}

}  // namespace

Llm::~Llm() = default;

Result<std::unique_ptr<Llm>> Llm::open(const std::string& path, const Options& options) {
  KVASIR_ASSIGN_OR_RETURN(const KernelTable* kernels, choose_kernels(options.isa));
  std::unique_ptr<Llm> llm(new Llm);
  llm->kernels_ = kernels;
  llm->pool_ = std::make_unique<ThreadPool>(options.threads != 0 ? options.threads : usable_cpus());
  std::unique_ptr<KvDirectory> directory;
  if (!options.kv_directory.empty()) {
    auto opened = KvDirectory::open(options.kv_directory);
    if (!opened.ok()) return opened.status();
    directory = std::move(*opened);
  }
  EngineConfig config = options.engine;
  KVASIR_RETURN_IF_ERROR(llm->load(path, options, &config));
  give_back_free_memory();
  KVASIR_ASSIGN_OR_RETURN(llm->kv_pool_, llm->size_pool(&config));
  KVASIR_ASSIGN_OR_RETURN(
      llm->layout_, KvLayout::make(llm->model_->config().kv_layers(), config.block_size, config.kv_type));
  KVASIR_ASSIGN_OR_RETURN(llm->engine_, llm->make_engine(config, std::move(directory)));
  return llm;
}

Result<KvPoolPlan> Llm::size_pool(EngineConfig* config) const {
  const ModelConfig& model = model_->config();
  KVASIR_ASSIGN_OR_RETURN(const KvLayout layout,
                          KvLayout::make(model.kv_layers(), config->block_size, config->kv_type));
  const uint32_t length = config->max_model_len != 0 ? config->max_model_len : model.context_length;
  KVASIR_ASSIGN_OR_RETURN(KvPoolPlan plan, plan_kv_pool(layout, read_memory(),
                                                        {.bytes = config->kv_bytes,
                                                         .reserved = reserved_bytes(*model_, *config),
                                                         .max_num_seqs = config->max_num_seqs,
                                                         .max_model_len = length}));
  config->kv_bytes = plan.bytes;
  return plan;
}

uint64_t Llm::sequences_of(uint64_t tokens) const {
  const uint32_t each = layout_->blocks_for(tokens);
  return each == 0 ? 0 : kv_pool_.bytes / layout_->block_bytes() / each;
}

// The tokenizer, the model, what predicts its steps and, where it is to be known again, what identifies it;
// the file is closed again.
Status Llm::load(const std::string& path, const Options& options, EngineConfig* config) {
  KVASIR_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  KVASIR_ASSIGN_OR_RETURN(tokenizer_, Tokenizer::load(file.metadata()));
  if (!options.kv_directory.empty()) config->kv_persistence.model = model_fingerprint(file);
  KVASIR_ASSIGN_OR_RETURN(
      model_, CausalLm::load(file, *kernels_, *pool_, model_limits(options.engine), options.progress));
  if (!options.machine) return {};
  machine_ = options.machine;
  ModelConfig shape = model_->config();
  auto weights = read_weight_sizes(file, shape);
  auto machine = weights.ok() ? machine_(*pool_, shape, *weights) : Result<HardwareProfile>(weights.status());
  if (machine.ok())
    priced_ = {std::move(shape), *std::move(weights), *std::move(machine)};
  else
    spdlog::warn("steps will not be predicted: {}", machine.message());
  return {};
}

DraftGround Llm::draft_ground() {
  return {.model = *model_,
          .tokenizer = *tokenizer_,
          .kernels = *kernels_,
          .pool = *pool_,
          .priced = priced_ ? &*priced_ : nullptr,
          .machine = machine_,
          .loaded = drafts_};
}

Result<std::unique_ptr<Engine>> Llm::start_engine(EngineConfig config,
                                                  std::vector<std::unique_ptr<Drafter>> more) {
  const Result<KvPoolPlan> plan = size_pool(&config);
  if (!plan.ok()) return plan.status();
  return make_engine(config, nullptr, std::move(more));
}

Result<std::unique_ptr<Engine>> Llm::make_engine(const EngineConfig& config,
                                                 std::unique_ptr<KvDirectory> directory,
                                                 std::vector<std::unique_ptr<Drafter>> more) {
  KVASIR_ASSIGN_OR_RETURN(auto drafters, make_drafters(config, draft_ground()));
  std::move(more.begin(), more.end(), std::back_inserter(drafters));
  std::unique_ptr<PerfModel> perf = priced_ ? priced_->perf(config, pool_->size()) : nullptr;
  return Engine::start(config, *model_, *tokenizer_, *kernels_, *pool_, std::move(perf), std::move(drafters),
                       std::move(directory));
}

Result<Llm::Answer> Llm::generate(Request request, const OnEvent& on_event) {
  const auto collector = std::make_shared<Collector>();
  collector->unfinished = request.n;
  collector->answer.choices.resize(request.n);
  if (request.prompt_logprobs >= 0 && !request.prompt_logprobs_sink) {
    request.prompt_logprobs_sink = [collector](std::vector<SampledToken>&& scores) {
      const std::lock_guard lock(collector->mutex);
      collector->answer.prompt_logprobs = std::move(scores);
    };
  }
  const auto sink = [collector, on_event](TokenEvent&& event) {
    if (on_event) on_event(event);
    collector->take(std::move(event));
  };
  const Result<RequestId> id = engine_->submit(std::move(request), sink);
  if (!id.ok()) return id.status();
  std::unique_lock lock(collector->mutex);
  collector->done.wait(lock, [&] { return collector->unfinished == 0; });
  if (!collector->error.ok()) return collector->error;
  return std::move(collector->answer);
}

Result<Llm::Completion> Llm::complete(std::string_view prompt, const SamplingParams& sampling,
                                      const OnEvent& on_event) {
  Request request;
  request.prompt = tokenizer_->encode(prompt, {});
  request.sampling = sampling;
  KVASIR_ASSIGN_OR_RETURN(Answer answer, generate(std::move(request), on_event));
  return std::move(answer.choices[0]);
}

}  // namespace kvasir
