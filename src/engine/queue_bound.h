#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "base/result.h"

namespace kvasir {

// How many requests wait, in all and of each user, and whether one more may. A user may have a fixed number
// waiting or, with most_per_user 0, fewer than kFreePlaces times the places that are free: alone seven
// eighths of the queue, and less the fuller it is, so that a user or two who flood it leave
// places to whoever comes anew; the last few go to those with the fewest waiting (dynamic thresholds:
// Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM
// Transactions on Networking 6(2), 1998). Not thread-safe.
class QueueBound {
 public:
  static constexpr uint32_t kFreePlaces = 7;
  struct Refused {
    uint64_t full = 0, user = 0;
  };

  QueueBound(uint32_t most, uint32_t most_per_user) : most_(most), most_per_user_(most_per_user) {}

  // One more request of that user waits; kResourceExhausted with the numbers when it may not.
  Status enter(const std::string& user);
  // One that entered waits no longer.
  void leave(const std::string& user);

  uint32_t size() const { return size_; }
  const Refused& refused() const { return refused_; }
  // Requests that a user who is alone may have waiting.
  static uint32_t most_of_one(uint32_t most, uint32_t most_per_user);

 private:
  uint32_t most_, most_per_user_;
  uint32_t size_ = 0;
  std::unordered_map<std::string, uint32_t> by_user_;  // those above 0
  Refused refused_;
};

}  // namespace kvasir
