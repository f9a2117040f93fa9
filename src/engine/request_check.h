#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "engine/request.h"

namespace kvasir {

// What a request is held against when it is submitted.
struct RequestLimits {
  uint32_t vocab_size = 0;
  uint32_t max_model_len = 0;
  uint32_t max_num_seqs = 0;
  std::span<const TokenId> end_tokens = {};  // those that end a generation
};

// Whether the engine can ever run this request; kInvalidArgument about the field
// otherwise, with both numbers where something is too large. Never truncates.
Status check_request(const Request& request, const RequestLimits& limits);

}  // namespace kvasir
