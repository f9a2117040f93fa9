#pragma once

#include "apps/kvasir/cli.h"

namespace kvasir {

// `kvasir bench speculate`.
Verb add_speculate_verb(CLI::App& bench);

}  // namespace kvasir
