// Instantiates templates of fmt that do not depend on the caller's types, so that they are compiled
// only once.
#include "base/format.h"

#include <fmt/format-inl.h>

namespace fmt {
namespace detail {

template dragonbox::decimal_fp<float> dragonbox::to_decimal(float) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double) noexcept;
template thousands_sep_result<char> thousands_sep_impl(locale_ref);
template char decimal_point_impl(locale_ref);
template void buffer<char>::append(const char*, const char*);
template thousands_sep_result<wchar_t> thousands_sep_impl(locale_ref);
template wchar_t decimal_point_impl(locale_ref);
template void buffer<wchar_t>::append(const wchar_t*, const wchar_t*);

}  // namespace detail
}  // namespace fmt
