#include "server/request_owner.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvasir {

Problem settle_owner(const AccessPolicy& access, const HttpRequest& head, GenerationRequest* request) {
  const std::string_view key = access.key_of(head);
  KeyTerms terms;
  if (!key.empty()) {
    const auto place = std::find(access.api_keys.begin(), access.api_keys.end(), key);
    request->owner = fmt::format("key {}", place - access.api_keys.begin());
    const auto found = access.terms.find(key);
    if (found != access.terms.end()) terms = found->second;
  } else if (!request->user.empty()) {
    request->owner = "user " + request->user;
  }
  request->weight = terms.weight;
  if (request->priority && *request->priority < terms.best_priority) {
    return bad_field("priority", fmt::format("'priority' is {}; this API key may ask for {} and above",
                                             *request->priority, terms.best_priority));
  }
  if (!request->priority) request->priority = std::max(0, terms.best_priority);
  return std::nullopt;
}

}  // namespace kvasir
