#include "base/parse_double.h"

#include <locale.h>
#include <stdlib.h>

namespace lockstep {

double parse_double(const char* text, char** end) {
  static const locale_t locale = ::newlocale(LC_ALL_MASK, "C", nullptr);
  return ::strtod_l(text, end, locale);
}

}  // namespace lockstep
