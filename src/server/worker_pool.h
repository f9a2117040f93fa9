#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kvasir {

// A few threads for what is too long for the I/O thread: parsing, templates, tokenising. First come, first
// served.
class WorkerPool {
 public:
  WorkerPool(unsigned threads, size_t max_waiting);
  ~WorkerPool();  // finishes what is running, drops what waits

  // False when max_waiting jobs wait already.
  bool post(std::function<void()> job);

 private:
  void run();

  const size_t max_waiting_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kvasir
