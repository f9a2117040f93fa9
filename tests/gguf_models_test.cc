// The directories of the real models are what the `gguf` package reads in them (tools/make_gguf_fixtures.py).

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gguf/gguf_file.h"

namespace kvasir {
namespace {

// In the order of GgufMetadata::Value.
constexpr const char* kKinds[] = {"bool",       "int",       "float",       "string",
                                  "array bool", "array int", "array float", "array string"};

std::vector<std::string> listing(const GgufFile& file) {
  std::vector<std::string> lines;
  for (const auto& [key, value] : file.metadata().entries())
    lines.push_back(fmt::format("key {} {}", key, kKinds[value.index()]));
  for (const TensorInfo& tensor : file.tensors()) {
    const TensorView& view = tensor.view;
    std::string line = fmt::format("tensor {} {}", tensor.name, static_cast<uint32_t>(view.type));
    size_t dims = view.shape.size();
    while (dims > 1 && view.shape[dims - 1] == 1) --dims;
    for (size_t d = 0; d < dims; ++d) line += fmt::format(" {}", view.shape[d]);
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> read_lines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

class GgufModel : public testing::TestWithParam<const char*> {};

TEST_P(GgufModel, HoldsWhatTheGgufPackageFinds) {
  const std::string root = KVASIR_SOURCE_DIR;
  const std::string path = root + "/models/" + GetParam() + ".gguf";
  if (!std::filesystem::exists(path))
    GTEST_SKIP() << path << " is not there; tools/fetch_models.py brings it";
  const std::vector<std::string> expected = read_lines(root + "/tests/data/gguf/" + GetParam() + ".txt");
  ASSERT_GT(expected.size(), 200u);
  const Result<GgufFile> file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ(file->file_bytes(), std::filesystem::file_size(path));
  EXPECT_THAT(listing(*file), testing::ElementsAreArray(expected));
}

INSTANTIATE_TEST_SUITE_P(Models, GgufModel,
                         testing::Values("smollm2-135m-instruct-q4_1", "gemma-3-270m-q4_k_m",
                                         "qwen2.5-coder-0.5b-instruct-q4_k_m",
                                         "qwen2.5-coder-1.5b-instruct-q4_k_m"),
                         [](const auto& model) { return fmt::format("{}", model.index); });

}  // namespace
}  // namespace kvasir
