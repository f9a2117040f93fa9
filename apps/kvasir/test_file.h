#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "apps/kvasir/output.h"

namespace kvasir {

// A file with these bytes, for as long as this lives. For tests.
class TestFile {
 public:
  explicit TestFile(std::string_view bytes) : path_(::testing::TempDir() + "kvasir-test-XXXXXX") {
    const int file = ::mkstemp(path_.data());
    EXPECT_GE(file, 0);
    EXPECT_TRUE(write_output(bytes, file).ok());
    ::close(file);
  }
  explicit TestFile(const std::vector<std::byte>& bytes)
      : TestFile(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())) {}
  ~TestFile() { ::unlink(path_.c_str()); }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace kvasir
