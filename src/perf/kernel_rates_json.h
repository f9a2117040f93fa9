#pragma once

#include <boost/json/fwd.hpp>
#include <string>

#include "base/result.h"
#include "perf/kernel_rates.h"

namespace kvasir {

// The part of a machine profile that holds kernel rates. read(json(r)) is r.
std::string kernel_rates_json(const KernelRates& rates);
// kInvalidArgument names the key, after `prefix`, and what is wrong with it.
Result<KernelRates> read_kernel_rates(const boost::json::object& object, const std::string& prefix);

}  // namespace kvasir
