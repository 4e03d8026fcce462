// fmt, as libtorch ships it. Debian's fmt is older and clashes with it: include this file and never
// <fmt/...> directly.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
