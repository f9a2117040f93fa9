#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "engine/engine_core.h"
#include "engine/fake_model.h"
#include "world.h"

namespace kvasir::sim {

// The whole EngineCore over the fake model: sampling, text, choices, events. Each request has a reader, who
// may be slow: he takes the events when he likes, and the engine must not care. Every answer is held against
// the one that the model gives without an engine.
class EngineWorld final : public World {
 public:
  explicit EngineWorld(const Setup& setup);
  ~EngineWorld() override;

  Status apply(const Op& op) override;
  Status finish() override;

 private:
  struct Reader;

  void arrive(const Arrival& arrival);
  Request request_of(const Arrival& arrival) const;
  Status step();
  Status check();
  void read_on(bool everything);
  Status check_answers();

  Setup setup_;
  FakeLm::Options model_options_;
  FakeLm model_;
  FakeTokenizer tokenizer_;
  ThreadPool threads_{1};
  std::unique_ptr<EngineCore> core_;
  std::vector<std::unique_ptr<Reader>> readers_;
  uint64_t work_ = 0;
};

}  // namespace kvasir::sim
