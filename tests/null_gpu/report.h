// What the null GPU saw: counts, kernels by name, where the host waited, and rules that were
// broken.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace null_gpu {

/// NULL_GPU_<name>, or `otherwise`.
std::string setting(const char* name, const std::string& otherwise);
int64_t number_setting(const char* name, int64_t otherwise);
/// Where ranks meet and reports go; made if it is not there.
const std::string& folder();

/// `name` lives as long as the process.
void count(const char* name, int64_t amount = 1);
/// The largest of what is told.
void highest(const char* name, int64_t value);
void count_kernel(const char* name);
/// What an operation, a kernel or a copy read and wrote of the device's memory.
void count_moved(const char* what, int64_t bytes);

/// Where in the program this is called from: return addresses, innermost first.
using Site = std::vector<uintptr_t>;
Site site();
std::string told(const Site& site);
/// As addresses in the program's file alone: the same in all ranks.
Site within_program(const Site& site);
std::string told_within_program(const Site& site);

/// The host stood still until the device was there; `how`: the call.
void host_waited(const char* how);
/// Tells what was done against which rule, writes the report, and ends the process with code 86.
[[noreturn]] void broken(const std::string& what, const std::string& more = "");
/// A rule that CUDA answers with an error: counted, and told.
void refused(const std::string& what);

/// At the process's end.
void write_report();

}  // namespace null_gpu
