#pragma once

#include <string>

#include "apps/kvasir/cli.h"
#include "perf/hardware_profile.h"

namespace kvasir {

// `kvasir bench machine`.
Verb add_machine_verb(CLI::App& bench);

// The profile as a table for people.
std::string machine_md(const HardwareProfile& machine);

}  // namespace kvasir
