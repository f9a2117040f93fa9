#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/stats.h"
#include "kvcache/block_pool.h"
#include "kvcache/kv_directory.h"
#include "kvcache/kv_file.h"
#include "kvcache/kv_store.h"
#include "kvcache/prefix_cache.h"

namespace kvasir {

// Keeps the prefix cache's blocks in a file over restarts of the process. Everything is called by the
// engine's thread, between steps. A save in the background copies a few blocks per call and leaves hashing
// and writing to a thread of its own; blocks that were given up meanwhile are left out, for a block's
// contents never change while it is in the cache (I3, I5).
class KvPersist {
 public:
  struct Options {
    uint64_t max_bytes = 0;       // of the file
    double interval_seconds = 0;  // between saves in the background; 0: none
    uint32_t vocab = 0;
    std::function<void()> wake{};  // called from the other thread when the next part may be handed over
  };
  // The references outlive this object.
  KvPersist(std::unique_ptr<KvDirectory> directory, KvFileKey key, const Options& options,
            const KvLayout& layout, BlockPool& pool, PrefixCache& cache, KvStore& store);
  ~KvPersist();  // ends a save in the background; the file stays as it was

  // Fills the empty cache from the file, as far as the pool reaches. A file that is not ours, or damaged, is
  // warned of and left alone until the next save; a damaged block is dropped with what follows it.
  void restore();

  // Begins a save when it is time and something is new, and hands over the next part of one that goes on.
  void tick(double now);
  // Whether tick() has something to do at `now`, and else when it will have (none: not by itself).
  bool due(double now) const;
  std::optional<double> next_due() const;

  // Writes everything now, on this thread.
  void save();

  const EngineStats::Persistence& stats() const { return stats_; }

 private:
  struct Part {
    std::vector<std::byte> bytes;
    size_t used = 0;
  };
  // A save in the background.
  struct Job {
    PrefixSnapshot snapshot;
    std::vector<bool> kept;  // per entry handed over so far
    size_t next_block = 0;
    double started = 0;
    uint64_t serials = 0;  // given when it began
    bool last = false;     // everything was handed over
    // Guarded by mutex_:
    Part part;
    bool has_part = false;
    bool abandoned = false;
    bool done = false;
    Result<uint64_t> outcome = uint64_t{0};
    std::thread thread;
  };

  bool still_there(const PrefixSnapshot& snapshot, size_t first, uint32_t units) const;
  bool has_room(const PrefixSnapshot& snapshot);
  void begin(double now);
  void hand_over();
  void write_parts(Job& job);
  Result<uint64_t> write_all(const PrefixSnapshot& snapshot);
  void end_job();
  void note_saved(const Result<uint64_t>& bytes, size_t blocks, double seconds, uint64_t serials);

  std::unique_ptr<KvDirectory> directory_;
  KvFileKey key_;
  Options options_;
  const KvLayout& layout_;
  BlockPool& pool_;
  PrefixCache& cache_;
  KvStore& store_;
  EngineStats::Persistence stats_{.enabled = true};
  double next_save_ = 0;
  uint64_t saved_serials_ = 0;  // given when the last save began

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<Job> job_;
};

}  // namespace kvasir
