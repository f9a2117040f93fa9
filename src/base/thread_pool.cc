#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "base/check.h"

namespace kvasir {
namespace {

// About 20-50 microseconds of pause instructions before a waiter goes to sleep in the kernel.
constexpr int kSpins = 4000;

// A thread looks for work in its own share and in so many less one of others': on machines with many, looking
// everywhere would take as long as the work.
constexpr uint32_t kSharesTried = 8;

void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns once value != old: spins, then sleeps (a futex on Linux).
void wait_while_equal(std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    cpu_relax();
  }
  value.wait(old, std::memory_order_acquire);
}

// CPUs granted by the cgroup v2 or v1 quota, or 0 when there is none.
double cgroup_cpu_quota() {
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (v2 >> quota >> period && quota != "max" && period > 0) return std::atof(quota.c_str()) / period;
  std::ifstream q1("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream p1("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double quota_us = 0;
  if (q1 >> quota_us && p1 >> period && quota_us > 0 && period > 0) return quota_us / period;
  return 0;
}

}  // namespace

void Worker::barrier() {
  deals_ = 0;
  pool_.wait_at_barrier(sense_);
}

std::pair<uint64_t, uint64_t> Worker::share(uint64_t items, uint64_t grain) const {
  const uint64_t grains = (items + grain - 1) / grain;
  const uint64_t begin = grains * index_ / count_ * grain;
  const uint64_t end = grains * (index_ + 1) / count_ * grain;
  return {std::min(begin, items), std::min(end, items)};
}

Deal Worker::deal(uint64_t items, uint64_t grain, uint64_t piece) {
  CHECK(deals_ < ThreadPool::kDeals && piece % grain == 0);
  Deal deal(pool_, deals_++, index_);
  deal.items_ = items;
  deal.grain_ = grain;
  deal.piece_ = piece;
  return deal;
}

// Shares and their pieces begin at multiples of the grain. No two threads get one piece, as whoever adds to a
// counter gets what it was.
bool Deal::next(uint64_t& begin, uint64_t& end) {
  const uint32_t threads = pool_.size();
  for (; asked_ < std::min(threads, kSharesTried); ++asked_) {
    const Worker of(pool_, (worker_ + asked_) % threads, threads);
    const auto [first, last] = of.share(items_, grain_);
    std::atomic<uint32_t>& taken = pool_.dealt_[slot_ * threads + of.index()].value;
    if (first + taken.load(std::memory_order_relaxed) * piece_ >= last) continue;
    begin = first + taken.fetch_add(1, std::memory_order_relaxed) * piece_;
    if (begin >= last) continue;
    end = std::min(last, begin + piece_);
    return true;
  }
  return false;
}

ThreadPool::ThreadPool(uint32_t threads)
    : size_(threads), dealt_(std::make_unique<PaddedCounter[]>(size_t{kDeals} * threads)) {
  CHECK(threads >= 1);
  threads_.reserve(threads - 1);
  for (uint32_t i = 1; i < threads; ++i) threads_.emplace_back([this, i] { worker_main(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.value.fetch_add(1, std::memory_order_release);
  generation_.value.notify_all();
  for (std::thread& t : threads_) t.join();
}

// By one thread, while no other is between a barrier and the next.
void ThreadPool::collect_deals() {
  for (uint32_t i = 0; i < kDeals * size_; ++i) dealt_[i].value.store(0, std::memory_order_relaxed);
}

void ThreadPool::run(const std::function<void(Worker&)>& fn) {
  collect_deals();
  if (size_ > 1) {
    fn_ = &fn;
    running_.value.store(size_ - 1, std::memory_order_relaxed);
    generation_.value.fetch_add(1, std::memory_order_release);
    generation_.value.notify_all();
  }
  Worker self(*this, 0, size_);
  self.sense_ = sense_.value.load(std::memory_order_relaxed);
  fn(self);
  for (uint32_t left = running_.value.load(std::memory_order_acquire); size_ > 1 && left != 0;
       left = running_.value.load(std::memory_order_acquire))
    wait_while_equal(running_.value, left);
}

void ThreadPool::worker_main(uint32_t index) {
  uint32_t seen = 0;
  for (;;) {
    wait_while_equal(generation_.value, seen);
    seen = generation_.value.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    Worker self(*this, index, size_);
    self.sense_ = sense_.value.load(std::memory_order_relaxed);
    (*fn_)(self);
    if (running_.value.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.value.notify_all();
  }
}

// Sense-reversing barrier (Mellor-Crummey and Scott, 1991): the last to arrive flips the sense.
void ThreadPool::wait_at_barrier(uint32_t& sense) {
  if (size_ == 1) return collect_deals();
  const uint32_t old = sense;
  sense = old + 1;
  if (arrived_.value.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    arrived_.value.store(0, std::memory_order_relaxed);
    collect_deals();
    sense_.value.store(old + 1, std::memory_order_release);
    sense_.value.notify_all();
    return;
  }
  wait_while_equal(sense_.value, old);
}

uint32_t usable_cpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  uint32_t cpus = std::max(1u, std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) cpus = static_cast<uint32_t>(CPU_COUNT(&mask));
  if (const double quota = cgroup_cpu_quota(); quota > 0)
    cpus = std::min(cpus, static_cast<uint32_t>(std::ceil(quota)));
  return std::max(1u, cpus);
}

}  // namespace kvasir
