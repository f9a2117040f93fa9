#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "server/api_error.h"
#include "server/generation_request.h"

namespace kvasir {

enum class FieldType : uint8_t {
  kBoolean,
  kInteger,
  kNumber,
  kString,    // range: of its length in bytes
  kStrings,   // one string or a list; range: of their number
  kIntegers,  // a list of token ids; range: of their number
  kArray,     // range: of the number of elements
  kObject,
  kAny,
};

enum class FieldEffect : uint8_t {
  kUsed,
  kNoEffect,  // part of the public APIs, accepted and without influence here
  kRefused,   // not built: anything but the neutral value (null, false, 0, "", [], {}, or `min`) is a 400
};

inline constexpr uint8_t kChatField = 1;
inline constexpr uint8_t kCompletionField = 2;
inline constexpr uint8_t kBothEndpoints = kChatField | kCompletionField;

// One field of a request: everything that parsing, validation and the API page (docs/api.md) know about it.
struct RequestField {
  using Read = Problem (*)(const boost::json::value& value, std::string_view name,
                           GenerationRequest& request);

  std::string_view name;
  std::string_view
      aliases;  // other spellings, separated by spaces; all are checked, the first present counts
  uint8_t endpoints = kBothEndpoints;
  FieldType type = FieldType::kAny;
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;   // min itself is out of range
  std::string_view absent;  // what absence means, in words
  std::string_view doc;
  FieldEffect effect = FieldEffect::kUsed;
  Read read = nullptr;  // with a value of the right type and range, never null
};

// Every field we know, in the order of the API page.
std::span<const RequestField> request_fields();

// Reads a request body of an endpoint (kChatField or kCompletionField). A null is as good as an absent field;
// unknown fields are skipped and counted in *unknown.
Problem read_request(const boost::json::value& body, uint8_t endpoint, GenerationRequest* request,
                     uint32_t* unknown);

// The API page, in Markdown (tools/make_api_docs.cc writes it).
std::string api_fields_markdown();

// An integer, also when written as 1.0; nullopt when it is none or not exact.
std::optional<int64_t> json_integer(const boost::json::value& value);
double json_number(const boost::json::value& value);

}  // namespace kvasir
