#pragma once

#include <cstddef>

#include "kernels/table.h"

// What one thread of this machine can do (kernels/peak.h), measured in the run that states a fraction of it.
namespace kvasir::bench {

// Seconds of CPU time this thread has used: other people's time slices do not count.
double thread_seconds();

// Multiply-adds per second on registers alone, by the best instructions of the set; 5 to 20 ms each.
double int8_peak(Isa isa);
double f32_peak(Isa isa);

// Bytes per second of reading memory, small ones again and again, large ones once; the better of two ways.
// bytes is a multiple of 4096.
double read_bandwidth(Isa isa, const std::byte* data, size_t bytes);

}  // namespace kvasir::bench
