#include "kvcache/kv_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "kvcache/kv_directory.h"
#include "kvcache/kv_file_format.h"
#include "kvcache/kv_store.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr uint32_t kBlockTokens = 16;
constexpr uint32_t kVocab = 100;

KvLayout make_layout(KvType type = KvType::kF16, uint32_t block = kBlockTokens, uint32_t heads = 1,
                     uint32_t window = 0) {
  return KvLayout::make(std::vector<KvLayerSpec>{{heads, 8, 0}, {heads, 8, window}}, block, type).value();
}

// A chain of three blocks under one salt.
PrefixSnapshot chain() {
  PrefixSnapshot s;
  s.salts = {PrefixCache::salt_digest("salt")};
  s.nodes = {{PrefixSnapshot::kNone, 0}, {0, 0}, {1, 0}};
  for (uint32_t t = 0; t < 3 * kBlockTokens; ++t) s.tokens.push_back(static_cast<TokenId>(t));
  s.entries = {{0, 0}, {1, 0}, {2, 0}};
  s.blocks = {BlockId{0}, BlockId{1}, BlockId{2}};
  return s;
}

class KvFileTest : public testing::Test {
 protected:
  KvFileTest() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    for (uint32_t b = 0; b < 3; ++b) std::memset(store_.block(BlockId{b}), 'a' + b, layout_.block_bytes());
  }
  ~KvFileTest() override { fs::remove_all(folder_); }

  Status write(const PrefixSnapshot& snapshot) {
    auto writer = KvFileWriter::create(file_, layout_, key_);
    if (!writer.ok()) return writer.status();
    for (const BlockId id : snapshot.blocks) KVASIR_RETURN_IF_ERROR(writer->append(store_.block_bytes(id)));
    return writer->finish(snapshot).status();
  }
  Result<KvFileReader> read() { return KvFileReader::open(file_, layout_, key_, kVocab); }
  void expect_refused(ErrorCode code, const std::string& words) {
    auto reader = read();
    ASSERT_FALSE(reader.ok()) << words;
    EXPECT_EQ(reader.status().code(), code) << reader.message();
    EXPECT_THAT(reader.message(), HasSubstr(words));
    EXPECT_THAT(reader.message(), HasSubstr(file_));
  }
  std::string bytes() {
    std::ifstream in(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const std::string& all) { std::ofstream(file_, std::ios::binary | std::ios::trunc) << all; }
  void flip(size_t at) {
    std::string all = bytes();
    all[at] = static_cast<char>(all[at] ^ 0x10);
    put(all);
  }

  const fs::path folder_ = fs::temp_directory_path() / ("kvasir_kv_file_" + std::to_string(::getpid()));
  const std::string file_ = (folder_ / "prefixes.kv").string();
  KvLayout layout_ = make_layout();
  KvFileKey key_ = kv_file_key(layout_, "weights 1", 1);
  KvStore store_{layout_, 3};
};

TEST_F(KvFileTest, GivesBackWhatWasWritten) {
  ASSERT_TRUE(write(chain()).ok());
  EXPECT_EQ(fs::file_size(file_), snapshot_bytes(layout_, 1, 3, 3, 3));
  EXPECT_FALSE(fs::exists(file_ + ".tmp"));
  struct stat info = {};
  ASSERT_EQ(::stat(file_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u) << "prompts are in it";
  auto reader = read();
  ASSERT_TRUE(reader.ok()) << reader.message();
  const PrefixSnapshot& s = reader->snapshot();
  const PrefixSnapshot wanted = chain();
  EXPECT_EQ(s.salts, wanted.salts);
  EXPECT_EQ(s.tokens, wanted.tokens);
  EXPECT_EQ(s.blocks, wanted.blocks);
  ASSERT_EQ(s.nodes.size(), 3u);
  EXPECT_EQ(s.nodes[2].parent, 1u);
  ASSERT_EQ(s.entries.size(), 3u);
  EXPECT_EQ(s.entries[2].node, 2u);
  std::vector<std::byte> block(layout_.block_bytes());
  for (uint32_t b = 0; b < 3; ++b) {
    ASSERT_TRUE(reader->read_block(b, block));
    EXPECT_EQ(std::memcmp(block.data(), store_.block(BlockId{b}), block.size()), 0);
  }
}

TEST_F(KvFileTest, ThereIsNothingIsNoFault) {
  EXPECT_EQ(read().status().code(), ErrorCode::kNotFound);
}

TEST_F(KvFileTest, EveryByteOfHeaderKeyAndDirectoryCounts) {
  ASSERT_TRUE(write(chain()).ok());
  const std::string whole = bytes();
  const size_t key_end = sizeof(KvFileHeader) + key_.text().size();
  const size_t directory = whole.size() - directory_bytes(1, 3, 3, 3, kBlockTokens);
  for (size_t at = 0; at < whole.size(); ++at) {
    if (at >= key_end && at < directory) continue;
    flip(at);
    EXPECT_FALSE(read().ok()) << "byte " << at;
    put(whole);
  }
  EXPECT_TRUE(read().ok());
}

TEST_F(KvFileTest, ADamagedBlockIsKnownAndTheOthersAreRead) {
  ASSERT_TRUE(write(chain()).ok());
  flip(kKvPayloadOffset + layout_.block_bytes() + 5);
  auto reader = read();
  ASSERT_TRUE(reader.ok()) << reader.message();
  std::vector<std::byte> block(layout_.block_bytes());
  EXPECT_TRUE(reader->read_block(0, block));
  EXPECT_FALSE(reader->read_block(1, block));
  EXPECT_TRUE(reader->read_block(2, block));
}

// Two blocks that changed places have sound bytes and wrong tokens.
TEST_F(KvFileTest, ABlockInAnothersPlaceIsDamaged) {
  ASSERT_TRUE(write(chain()).ok());
  std::string all = bytes();
  const size_t size = layout_.block_bytes();
  std::swap_ranges(all.begin() + kKvPayloadOffset,
                   all.begin() + static_cast<ptrdiff_t>(kKvPayloadOffset + size),
                   all.begin() + static_cast<ptrdiff_t>(kKvPayloadOffset + size));
  put(all);
  auto reader = read();
  ASSERT_TRUE(reader.ok());
  std::vector<std::byte> block(size);
  EXPECT_FALSE(reader->read_block(0, block));
  EXPECT_FALSE(reader->read_block(1, block));
}

TEST_F(KvFileTest, CutShortOrAddedTo) {
  ASSERT_TRUE(write(chain()).ok());
  const std::string whole = bytes();
  for (const size_t left : {0u, 1u, 79u, 80u, 200u, 4095u, 4096u, 5000u}) {
    put(whole.substr(0, left));
    expect_refused(ErrorCode::kCorrupt, "bytes");
  }
  put(whole.substr(0, whole.size() - 1));
  expect_refused(ErrorCode::kCorrupt, "cut short");
  put(whole + "x");
  expect_refused(ErrorCode::kCorrupt, "added to");
}

TEST_F(KvFileTest, ForeignAndOldFiles) {
  put(std::string(8192, 'G'));
  expect_refused(ErrorCode::kCorrupt, "no file of KV blocks");
  ASSERT_TRUE(write(chain()).ok());
  const std::string whole = bytes();
  std::string old = whole;
  old[offsetof(KvFileHeader, version)] = 0;
  put(old);
  expect_refused(ErrorCode::kCorrupt, "format 0");
  std::string swapped = whole;
  std::reverse(swapped.begin() + offsetof(KvFileHeader, byte_order),
               swapped.begin() + offsetof(KvFileHeader, byte_order) + 4);
  put(swapped);
  expect_refused(ErrorCode::kCorrupt, "byte order");
  fs::remove(file_);
  fs::create_directory(file_);
  expect_refused(ErrorCode::kCorrupt, "no regular file");
}

TEST_F(KvFileTest, EveryPartOfTheKeyCounts) {
  ASSERT_TRUE(write(chain()).ok());
  const auto refused = [&](const KvLayout& layout, const KvFileKey& key, const char* part) {
    auto reader = KvFileReader::open(file_, layout, key, kVocab);
    ASSERT_FALSE(reader.ok()) << part;
    EXPECT_EQ(reader.status().code(), ErrorCode::kInvalidArgument) << reader.message();
    EXPECT_THAT(reader.message(), HasSubstr(part));
  };
  refused(layout_, kv_file_key(layout_, "weights 2", 1), "another model");
  refused(layout_, kv_file_key(layout_, "weights 1", 2), "another numerics version");
  const KvLayout bytes = make_layout(KvType::kInt8);
  refused(bytes, kv_file_key(bytes, "weights 1", 1), "another KV type");
  const KvLayout larger = make_layout(KvType::kF16, 32);
  refused(larger, kv_file_key(larger, "weights 1", 1), "another block size");
  const KvLayout windowed = make_layout(KvType::kF16, 16, 1, 64);
  refused(windowed, kv_file_key(windowed, "weights 1", 1), "another block size");
  // The same block of the same bytes, with the planes of other heads in it.
  const KvLayout heads = KvLayout::make(std::vector<KvLayerSpec>{{2, 4, 0}, {2, 4, 0}}, 16).value();
  ASSERT_EQ(heads.block_bytes(), layout_.block_bytes());
  refused(heads, kv_file_key(heads, "weights 1", 1), "another KV layers");
  KvFileKey shorter = key_;
  shorter.parts.pop_back();
  refused(layout_, shorter, "more than this server knows");
}

TEST_F(KvFileTest, TokensBeyondTheVocabularyAreRefused) {
  ASSERT_TRUE(write(chain()).ok());
  EXPECT_FALSE(KvFileReader::open(file_, layout_, key_, 40).ok());
}

TEST_F(KvFileTest, AnUnfinishedFileLeavesTheOldOne) {
  ASSERT_TRUE(write(chain()).ok());
  const std::string whole = bytes();
  {
    auto writer = KvFileWriter::create(file_, layout_, key_);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->append(store_.block_bytes(BlockId{0})).ok());
    EXPECT_TRUE(fs::exists(file_ + ".tmp"));
  }
  EXPECT_FALSE(fs::exists(file_ + ".tmp"));
  EXPECT_EQ(bytes(), whole);
}

// A process that is killed while it writes leaves the old file as it was, and the next one writes again.
TEST_F(KvFileTest, KilledWhileWriting) {
  ASSERT_TRUE(write(chain()).ok());
  const std::string whole = bytes();
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto writer = KvFileWriter::create(file_, layout_, key_);
    (void)writer->append(store_.block_bytes(BlockId{0}));
    (void)!::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  EXPECT_TRUE(fs::exists(file_ + ".tmp"));
  EXPECT_EQ(bytes(), whole);
  EXPECT_TRUE(read().ok());
  const auto directory = KvDirectory::open(folder_.string());
  ASSERT_TRUE(directory.ok()) << directory.message();
  EXPECT_FALSE(fs::exists(file_ + ".tmp")) << "what is left of it is cleared away";
  EXPECT_TRUE(write(chain()).ok());
}

// As on a full disk: a write that fails half way. The limit of the file size holds for a child only.
TEST_F(KvFileTest, AWriteThatFailsLeavesTheOldFile) {
  ASSERT_TRUE(write(chain()).ok());
  const std::string whole = bytes();
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{kKvPayloadOffset + 100, kKvPayloadOffset + 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const Status status = write(chain());
    const bool said = status.code() == ErrorCode::kIo && status.message().find(file_) != std::string::npos;
    ::_exit(said ? 0 : 1);
  }
  int ended = -1;
  ::waitpid(child, &ended, 0);
  EXPECT_EQ(ended, 0);
  EXPECT_FALSE(fs::exists(file_ + ".tmp"));
  EXPECT_EQ(bytes(), whole);
}

TEST_F(KvFileTest, ALinkAtTheTemporaryNameIsNotFollowed) {
  const fs::path other = folder_ / "other";
  std::ofstream(other) << "untouched";
  fs::create_symlink(other, file_ + ".tmp");
  ASSERT_TRUE(write(chain()).ok());
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(file_)));
  EXPECT_EQ(fs::file_size(other), 9u);
}

TEST_F(KvFileTest, NowhereToWriteIsAnError) {
  const auto writer = KvFileWriter::create((folder_ / "absent" / "x.kv").string(), layout_, key_);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.status().code(), ErrorCode::kIo);
  EXPECT_THAT(writer.message(), HasSubstr("absent"));
}

TEST_F(KvFileTest, OneProcessHasADirectory) {
  const std::string path = (folder_ / "a" / "b").string();
  auto first = KvDirectory::open(path);
  ASSERT_TRUE(first.ok()) << first.message();
  struct stat info = {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  const auto second = KvDirectory::open(path);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(second.message(), HasSubstr(std::to_string(::getpid())));
  first->reset();
  EXPECT_TRUE(KvDirectory::open(path).ok());
  const auto impossible = KvDirectory::open("/dev/null/x");
  ASSERT_FALSE(impossible.ok());
  EXPECT_EQ(impossible.status().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvasir
