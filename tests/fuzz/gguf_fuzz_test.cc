// Runs the fuzz target of gguf_fuzz.cc as a plain test: over the corpus, and over seeded mutations of it.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "gguf/gguf_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace kvasir {
namespace {

using Bytes = std::vector<uint8_t>;

struct CorpusFile {
  std::string name;
  Bytes bytes;
};

// The files of tests/corpus/gguf/<folder>, by name.
std::vector<CorpusFile> corpus(const std::string& folder) {
  std::vector<CorpusFile> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(KVASIR_SOURCE_DIR) + "/tests/corpus/gguf/" + folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    files.push_back({entry.path().filename(), Bytes(std::istreambuf_iterator<char>(in), {})});
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return files;
}

Result<GgufFile> parse(const Bytes& bytes) {
  return GgufFile::parse(std::as_bytes(std::span(bytes)), "corpus");
}

TEST(GgufCorpus, SoundFilesAreRead) {
  const std::vector<CorpusFile> files = corpus("sound");
  ASSERT_GE(files.size(), 5u);
  for (const CorpusFile& file : files) {
    const Result<GgufFile> parsed = parse(file.bytes);
    EXPECT_TRUE(parsed.ok()) << file.name << ": " << (parsed.ok() ? "" : parsed.message());
    LLVMFuzzerTestOneInput(file.bytes.data(), file.bytes.size());
  }
}

TEST(GgufCorpus, DamagedFilesAreRefusedQuickly) {
  const std::vector<CorpusFile> files = corpus("damaged");
  ASSERT_GE(files.size(), 20u);
  for (const CorpusFile& file : files) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(parse(file.bytes).ok()) << file.name;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1)) << file.name;
    LLVMFuzzerTestOneInput(file.bytes.data(), file.bytes.size());
  }
}

// Values at the edges of what sizes and counts are checked against.
constexpr uint64_t kEdges[] = {0,
                               1,
                               2,
                               31,
                               32,
                               33,
                               0x7F,
                               0xFF,
                               0xFFFF,
                               0x7FFFFFFF,
                               0x80000000,
                               0xFFFFFFFF,
                               uint64_t{1} << 32,
                               uint64_t{1} << 60,
                               (uint64_t{1} << 62) + 1,
                               INT64_MAX,
                               uint64_t{1} << 63,
                               UINT64_MAX - 31,
                               UINT64_MAX};

// One small change: bits, bytes, whole integers, a cut, or a piece moved over another.
void mutate(Bytes& bytes, std::mt19937_64& random) {
  if (bytes.empty()) return;
  const size_t at = random() % bytes.size();
  const size_t left = bytes.size() - at;
  switch (random() % 6) {
    case 0:
      bytes[at] ^= static_cast<uint8_t>(1u << random() % 8);
      break;
    case 1:
      bytes[at] = static_cast<uint8_t>(random());
      break;
    case 2:
    case 3: {
      const uint64_t edge = kEdges[random() % std::size(kEdges)];
      std::memcpy(&bytes[at], &edge, std::min<size_t>(left, random() % 2 == 0 ? 4 : 8));
      break;
    }
    case 4:
      bytes.resize(at);
      break;
    case 5: {
      const size_t from = random() % bytes.size();
      std::memmove(&bytes[at], &bytes[from],
                   std::min({left, bytes.size() - from, size_t{1} + random() % 32}));
      break;
    }
  }
}

TEST(GgufMutations, NeverPassTheChecks) {
  constexpr int kCasesPerFile = 3000;
  std::mt19937_64 random(20240607);
  int accepted = 0;
  int refused = 0;
  for (const char* folder : {"sound", "damaged"}) {
    for (const CorpusFile& file : corpus(folder)) {
      // Most of a small file is its directory; the cases go there.
      for (int i = 0; i < kCasesPerFile; ++i) {
        Bytes bytes = file.bytes;
        const uint64_t changes = 1 + random() % 4;
        for (uint64_t c = 0; c < changes; ++c) mutate(bytes, random);
        LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
        ++(parse(bytes).ok() ? accepted : refused);
      }
    }
  }
  // Both sides of the checks were reached.
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace kvasir
