#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace kvasir {

class ThreadPool;

// Items 0..n-1 dealt out while they are worked on: a thread takes pieces of its own share, in order, and then
// of the shares that others are slower with. Which thread computes what differs from run to run.
class Deal {
 public:
  // The next piece [begin, end) for this thread; false where nothing is left.
  bool next(uint64_t& begin, uint64_t& end);

 private:
  friend class Worker;
  Deal(ThreadPool& pool, uint32_t slot, uint32_t worker) : pool_(pool), slot_(slot), worker_(worker) {}
  ThreadPool& pool_;
  uint32_t slot_;
  uint32_t worker_;
  uint64_t items_ = 0;
  uint64_t grain_ = 1;
  uint64_t piece_ = 1;  // items
  uint32_t asked_ = 0;  // shares found empty
};

// What one thread of a parallel region knows about itself: its index, how many there are, and their barrier.
class Worker {
 public:
  uint32_t index() const { return index_; }
  uint32_t count() const { return count_; }

  // Waits until every thread of the region has arrived; everything written before it is visible after it.
  void barrier();

  // The half-open part [first, second) of `items` that belongs to this thread when they are dealt out
  // contiguously, in multiples of `grain`.
  std::pair<uint64_t, uint64_t> share(uint64_t items, uint64_t grain = 1) const;

  // Starts a deal of items whose shares are as above, in pieces of `piece` items (a multiple of grain) or
  // more. Every thread of the region starts the same deals in the same order, at most ThreadPool::kDeals of
  // them between two barriers.
  Deal deal(uint64_t items, uint64_t grain, uint64_t piece);

 private:
  friend class Deal;
  friend class ThreadPool;
  Worker(ThreadPool& pool, uint32_t index, uint32_t count) : pool_(pool), index_(index), count_(count) {}
  ThreadPool& pool_;
  uint32_t index_;
  uint32_t count_;
  uint32_t sense_ = 0;
  uint32_t deals_ = 0;  // since the last barrier
};

// P threads that run one function together (SPMD). The calling thread is worker 0, so a pool of one starts no
// thread. Waiting threads spin briefly, then sleep; when the machine is over-subscribed they yield. One
// region at a time.
class ThreadPool {
 public:
  // threads >= 1. Threads inherit the caller's CPU affinity.
  explicit ThreadPool(uint32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  static constexpr uint32_t kDeals = 4;

  uint32_t size() const { return size_; }

  // Runs fn(worker) on every thread and returns when all have finished. fn must not throw.
  void run(const std::function<void(Worker&)>& fn);

 private:
  friend class Worker;
  friend class Deal;
  void worker_main(uint32_t index);
  void collect_deals();
  void wait_at_barrier(uint32_t& sense);

  struct alignas(64) PaddedCounter {
    std::atomic<uint32_t> value{0};
  };

  uint32_t size_;
  PaddedCounter arrived_;                   // threads at the current barrier
  PaddedCounter sense_;                     // flips when a barrier opens
  PaddedCounter generation_;                // counts regions; workers wait on it
  PaddedCounter running_;                   // workers still inside the region
  std::unique_ptr<PaddedCounter[]> dealt_;  // pieces taken of each share, [deal][worker]
  std::atomic<bool> stop_{false};
  const std::function<void(Worker&)>* fn_ = nullptr;
  std::vector<std::thread> threads_;
};

// Number of CPUs this process may really use: the smaller of its affinity mask and its cgroup quota (rounded
// up), at least 1.
uint32_t usable_cpus();

}  // namespace kvasir
