#pragma once

#include "apps/kvasir/model_facts.h"
#include "base/numa.h"
#include "engine/llm.h"
#include "server/api_server.h"

namespace kvasir {

// Prints what is served and how to try it, on stdout.
void print_serve_summary(Llm& llm, const ModelFacts& facts, const ApiServer& server, const MemoryNodes& nodes,
                         bool needs_key);

}  // namespace kvasir
