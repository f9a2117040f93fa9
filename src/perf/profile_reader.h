#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace kvasir {

// Takes checked values out of one object of a machine profile; the first fault stays, and names the key.
class ProfileReader {
 public:
  ProfileReader(const boost::json::object& object, std::string prefix)
      : object_(object), prefix_(std::move(prefix)) {}

  double number(const char* key, double least, double most);
  double rate(const char* key) { return number(key, 1, 1e18); }
  uint64_t count(const char* key, uint64_t least, uint64_t most);
  std::string text(const char* key);
  // `count` numbers (0: one at least) within the bounds.
  std::vector<double> numbers(const char* key, size_t count, double least, double most);
  const boost::json::array* array(const char* key);
  const boost::json::object* object(const char* key);
  bool has(const char* key) const { return object_.if_contains(key) != nullptr; }
  void fail(std::string_view key, std::string_view what);
  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const std::string& prefix() const { return prefix_; }
  const Status& status() const { return status_; }

 private:
  const boost::json::value* find(const char* key);

  const boost::json::object& object_;
  std::string prefix_;
  Status status_;
};

}  // namespace kvasir
