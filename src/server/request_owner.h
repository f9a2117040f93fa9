#pragma once

#include "server/access_policy.h"
#include "server/generation_request.h"

namespace kvasir {

// Says whose a request is: sets its owner and weight, and settles its priority. Users share the engine fairly
// (engine/fair_queue.h). A user is the API key that the request presents, whatever its `user` field says, so
// that nobody gains by making up names; on a server without keys it is the `user` field (or
// `safety_identifier`), and all who send none are one user. A 400 when the key may not ask for that priority.
Problem settle_owner(const AccessPolicy& access, const HttpRequest& head, GenerationRequest* request);

}  // namespace kvasir
