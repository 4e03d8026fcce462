# A header's first comment, in plain "//", is about the file; the code in it stands three spaces in.
1,/^#pragma once/ {
  1s,^// ,/// @file\n/// ,
  s,^//   ,///     ,
  s,^// ,/// ,
  s,^//$,///,
}
# Names in angle brackets are no tags.
/^ *\/\/\/ \{0,3\}[^ ]/ s/<\([a-z|/]\)/\&lt;\1/g
