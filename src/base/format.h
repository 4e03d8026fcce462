// Header for the version of fmt included in libtorch. Debian's fmt is older and conflicts with it,
// so include this file instead of <fmt/...>.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
