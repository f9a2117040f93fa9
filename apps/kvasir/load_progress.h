#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace kvasir {

// Shows on stderr how far a model is loaded: a bar where that is a terminal, else one line at the end.
// Colours only without NO_COLOR.
class LoadProgress {
 public:
  explicit LoadProgress(std::string name);

  void update(uint64_t done_bytes, uint64_t total_bytes);
  void finish();  // the model is there

 private:
  void draw(uint64_t done_bytes, uint64_t total_bytes) const;

  std::string name_;
  bool colour_;
  uint64_t total_bytes_ = 0;
  std::chrono::steady_clock::time_point begun_, drawn_;
};

// Whether text for this descriptor may be coloured.
bool wants_colour(int descriptor);

}  // namespace kvasir
