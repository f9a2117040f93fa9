#include "engine/kv_persist.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/log.h"
#include "engine/clock.h"

namespace kvasir {
namespace {

constexpr size_t kPartBytes = size_t{4} << 20;  // copied per step: about a millisecond

std::string mib(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

KvPersist::KvPersist(std::unique_ptr<KvDirectory> directory, KvFileKey key, const Options& options,
                     const KvLayout& layout, BlockPool& pool, PrefixCache& cache, KvStore& store)
    : directory_(std::move(directory)),
      key_(std::move(key)),
      options_(options),
      layout_(layout),
      pool_(pool),
      cache_(cache),
      store_(store) {
  next_save_ = monotonic_seconds() + options_.interval_seconds;
}

KvPersist::~KvPersist() {
  if (job_ != nullptr) end_job();
}

// --- restoring ---

void KvPersist::restore() {
  const double started = monotonic_seconds();
  const std::string file = directory_->file();
  auto reader = KvFileReader::open(file, layout_, key_, options_.vocab);
  if (!reader.ok()) {
    if (reader.status().code() == ErrorCode::kNotFound)
      spdlog::info("--kv-persist: no KV blocks in '{}' yet", directory_->path());
    else
      spdlog::warn("--kv-persist: {}; the server starts without it, and the next save replaces it",
                   reader.message());
    return;
  }
  PrefixSnapshot snapshot = reader->snapshot();
  const size_t in_file = snapshot.blocks.size();
  std::vector<bool> sound(snapshot.entries.size(), false);
  size_t block = 0, damaged = 0;
  uint32_t fitting = 0;  // entries
  for (; fitting < sound.size(); ++fitting) {
    const uint32_t units = layout_.groups()[snapshot.entries[fitting].group].units;
    if (units > pool_.free()) break;
    sound[fitting] = true;
    for (uint32_t u = 0; u < units; ++u, ++block) {
      const BlockId id = pool_.take();
      const bool good = reader->read_block(index_of(snapshot.blocks[block]), store_.block_bytes(id));
      snapshot.blocks[block] = id;
      damaged += !good;
      sound[fitting] = sound[fitting] && good;
    }
  }
  snapshot.entries.resize(fitting);
  snapshot.blocks.resize(block);
  sound.resize(fitting);
  enter_snapshot(layout_, snapshot, usable_entries(layout_, snapshot, sound), pool_, cache_);

  stats_.restored_blocks = pool_.cached();
  stats_.dropped_blocks = block - pool_.cached();
  stats_.restored_tokens = uint64_t{cache_.node_count()} * layout_.block_size();
  saved_serials_ = cache_.serials_given();
  if (damaged > 0)
    spdlog::warn(
        "--kv-persist: {} of {} KV blocks in '{}' are damaged and were dropped, {} with what follows them",
        damaged, in_file, file, stats_.dropped_blocks);
  if (block < in_file)
    spdlog::info("--kv-persist: the KV pool takes {} of the {} blocks in '{}', the most recently used", block,
                 in_file, file);
  spdlog::info("--kv-persist: {} KV blocks ({} tokens, {}) restored from '{}' in {:.2f} s",
               stats_.restored_blocks, stats_.restored_tokens,
               mib(stats_.restored_blocks * layout_.block_bytes()), file, monotonic_seconds() - started);
}

// --- saving ---

// Whether an entry's blocks are still what they were when the snapshot was taken.
bool KvPersist::still_there(const PrefixSnapshot& snapshot, size_t first, uint32_t units) const {
  for (size_t b = first; b < first + units; ++b) {
    if (cache_.place(snapshot.blocks[b]).serial != snapshot.serials[b]) return false;
  }
  return true;
}

// Whether the disk has room for the file beside the old one.
bool KvPersist::has_room(const PrefixSnapshot& s) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(directory_->path(), error);
  const uint64_t need =
      snapshot_bytes(layout_, s.salts.size(), s.nodes.size(), s.entries.size(), s.blocks.size());
  if (error || space.available >= need) return true;
  ++stats_.failures;
  spdlog::error("--kv-persist: the KV blocks need {}, and the disk of '{}' has {} left; they are not saved",
                mib(need), directory_->path(), mib(space.available));
  return false;
}

void KvPersist::save() {
  if (job_ != nullptr) end_job();
  if (cache_.serials_given() == saved_serials_) return;
  const double started = monotonic_seconds();
  const PrefixSnapshot snapshot = take_snapshot(layout_, pool_, cache_, options_.max_bytes);
  if (!has_room(snapshot)) return;
  const Result<uint64_t> bytes = write_all(snapshot);
  note_saved(bytes, snapshot.blocks.size(), monotonic_seconds() - started, cache_.serials_given());
}

Result<uint64_t> KvPersist::write_all(const PrefixSnapshot& snapshot) {
  KVASIR_ASSIGN_OR_RETURN(KvFileWriter writer, KvFileWriter::create(directory_->file(), layout_, key_));
  for (const BlockId id : snapshot.blocks) KVASIR_RETURN_IF_ERROR(writer.append(store_.block_bytes(id)));
  return writer.finish(snapshot);
}

void KvPersist::note_saved(const Result<uint64_t>& bytes, size_t blocks, double seconds, uint64_t serials) {
  if (!bytes.ok()) {
    ++stats_.failures;
    spdlog::error("--kv-persist: KV blocks were not saved: {}; the file of before stays", bytes.message());
    return;
  }
  ++stats_.saves;
  stats_.saved_bytes = *bytes;
  stats_.saved_blocks = blocks;
  stats_.saved_seconds = seconds;
  saved_serials_ = serials;
  spdlog::info("--kv-persist: {} KV blocks ({}) saved to '{}' in {:.2f} s", blocks, mib(*bytes),
               directory_->file(), seconds);
}

// --- saving in the background ---

std::optional<double> KvPersist::next_due() const {
  if (job_ != nullptr || options_.interval_seconds <= 0 || cache_.serials_given() == saved_serials_)
    return std::nullopt;
  return next_save_;
}

bool KvPersist::due(double now) const {
  if (job_ == nullptr) return next_due() && now >= *next_due();
  const std::lock_guard lock(mutex_);
  return job_->done || (!job_->has_part && !job_->last);
}

void KvPersist::tick(double now) {
  if (!due(now)) return;
  if (job_ == nullptr)
    begin(now);
  else if (job_->done)
    end_job();
  else
    hand_over();
}

void KvPersist::begin(double now) {
  next_save_ = now + options_.interval_seconds;
  auto job = std::make_unique<Job>();
  job->snapshot = take_snapshot(layout_, pool_, cache_, options_.max_bytes);
  if (!has_room(job->snapshot)) return;
  job->started = now;
  job->serials = cache_.serials_given();
  job->part.bytes.resize(std::max(kPartBytes, size_t{layout_.units()} * layout_.block_bytes()));
  job_ = std::move(job);
  job_->thread = std::thread([this] { write_parts(*job_); });
  hand_over();
}

// Copies the next entries that are still there, as many as a part holds.
void KvPersist::hand_over() {
  Job& job = *job_;
  PrefixSnapshot& s = job.snapshot;
  Part& part = job.part;  // ours while has_part is false
  part.used = 0;
  while (job.kept.size() < s.entries.size()) {
    const uint32_t units = layout_.groups()[s.entries[job.kept.size()].group].units;
    if (part.used + units * layout_.block_bytes() > part.bytes.size()) break;
    const bool keep = still_there(s, job.next_block, units);
    for (uint32_t u = 0; keep && u < units; ++u) {
      const auto block = store_.block_bytes(s.blocks[job.next_block + u]);
      std::memcpy(part.bytes.data() + part.used, block.data(), block.size());
      part.used += block.size();
    }
    job.next_block += units;
    job.kept.push_back(keep);
  }
  if (job.kept.size() == s.entries.size()) {
    keep_entries(layout_, job.kept, &s);
    job.last = true;
  }
  {
    const std::lock_guard lock(mutex_);
    job.has_part = true;
  }
  changed_.notify_one();
}

// The other thread: writes what is handed over until it was the last. Touches neither cache nor store.
void KvPersist::write_parts(Job& job) {
  auto writer = KvFileWriter::create(directory_->file(), layout_, key_);
  Status status = writer.status();
  for (bool last = false; !last;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return job.has_part || job.abandoned; });
      if (job.abandoned) return;
    }
    last = job.last;
    const std::span<const std::byte> bytes(job.part.bytes.data(), job.part.used);
    for (size_t at = 0; status.ok() && at < bytes.size(); at += layout_.block_bytes())
      status = writer->append(bytes.subspan(at, layout_.block_bytes()));
    if (!status.ok()) break;
    {
      const std::lock_guard lock(mutex_);
      job.has_part = false;
    }
    if (!last && options_.wake) options_.wake();
  }
  Result<uint64_t> outcome = status.ok() ? writer->finish(job.snapshot) : Result<uint64_t>(status);
  {
    const std::lock_guard lock(mutex_);
    job.outcome = std::move(outcome);
    job.done = true;
  }
  if (options_.wake) options_.wake();
}

// Ends the save in the background, be it done or not.
void KvPersist::end_job() {
  {
    const std::lock_guard lock(mutex_);
    job_->abandoned = true;
  }
  changed_.notify_one();
  job_->thread.join();
  const std::unique_ptr<Job> job = std::move(job_);
  if (job->done)
    note_saved(job->outcome, job->snapshot.blocks.size(), monotonic_seconds() - job->started, job->serials);
}

}  // namespace kvasir
