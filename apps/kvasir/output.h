#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace kvasir {

// Writes all of `text` without a buffer of our own: what is reported as written has reached the system. kIo
// names the stream and the system's reason.
Status write_output(std::string_view text, int descriptor = STDOUT_FILENO);

// Formats to standard error. That it cannot be written stops nothing: there is nobody left to tell.
template <class... Args>
void tell(fmt::format_string<Args...> format, Args&&... args) {
  (void)write_output(fmt::format(format, std::forward<Args>(args)...), STDERR_FILENO);
}

// Says on standard error what is being done, where that is a terminal; nothing elsewhere. The cursor waits at
// the beginning of the line, so that what comes next, a log line too, takes its place.
void show_progress(std::string_view text);
void end_progress();

// Whether write_report() could write that file, for finding out before long work; leaves it as it is.
Status check_report(const std::string& path);
// Writes what --report asks for to the file that it names. kIo names both.
Status write_report(const std::string& path, std::string_view text);

// Writes to standard output for a verb that then ends: kExitOk, or kExitFailure with the reason on standard
// error.
int print_or_fail(std::string_view text);

}  // namespace kvasir
