// Observations of the null GPU: counts, kernels by name, host waits, and violated rules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace null_gpu {

/// Returns the environment variable NULL_GPU_<name>, or `otherwise`.
std::string setting(const char* name, const std::string& otherwise);
int64_t number_setting(const char* name, int64_t otherwise);
/// Folder for the files that ranks share and for reports; created if missing.
const std::string& folder();

/// Adds to a counter; `name` must have static lifetime.
void count(const char* name, int64_t amount = 1);
/// Records the maximum of a value.
void highest(const char* name, int64_t value);
void count_kernel(const char* name);
/// Adds the bytes of device memory that an operation, kernel or copy accessed.
void count_moved(const char* what, int64_t bytes);

/// Call site in the program: return addresses, innermost first.
using Site = std::vector<uintptr_t>;
Site site();
std::string told(const Site& site);
/// Call site as addresses within the program's file, which are the same in all ranks.
Site within_program(const Site& site);
std::string told_within_program(const Site& site);

/// Records that the host blocked on the device; `how` is the call.
void host_waited(const char* how);
/// Reports a violated rule, writes the report, and ends the process with code 86.
[[noreturn]] void broken(const std::string& what, const std::string& more = "");
/// Counts and reports a violation for which CUDA returns an error.
void refused(const std::string& what);

/// Called when the process ends.
void write_report();

}  // namespace null_gpu
