#include "server/cache_domain.h"

#include "base/sha256.h"

namespace kvasir {

std::string cache_domain(std::string_view api_key, std::string_view cache_salt) {
  std::string domain;
  if (!api_key.empty()) {
    const Sha256Digest digest = domain_digest("kvasir cache of an API key", api_key);
    domain = "key:";
    domain.append(digest.begin(), digest.end());
    domain += cache_salt;
  } else if (!cache_salt.empty()) {
    domain = "salt:";
    domain += cache_salt;
  }
  return domain;
}

}  // namespace kvasir
