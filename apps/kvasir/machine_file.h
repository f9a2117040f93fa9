#pragma once

#include <string>

#include "base/result.h"
#include "perf/hardware_profile.h"

namespace kvasir {

// Where `kvasir bench machine` leaves what it measured: $XDG_CACHE_HOME/kvasir/machine.json, else
// ~/.cache/kvasir/machine.json; "" where the environment names no home.
std::string default_machine_path();

// Makes the folders that are missing. The file is whole or as it was before.
Status save_machine(const HardwareProfile& machine, const std::string& path);

}  // namespace kvasir
