// Tests of object names as file names: no name leaves the cache folder.
#include "objects/fetch.h"

#include <gtest/gtest.h>

namespace lockstep::objects {
namespace fetch_test {

std::string name_of(const std::string& base, const std::string& key) {
  try {
    return name_below(parse_location(base), Object{.key = key});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("rename it"), std::string::npos) << error.what();
    return "refused";
  }
}

TEST(Fetch, NamesAreWhatFollowsTheFolder) {
  EXPECT_EQ(name_of("s3://data/web", "web/a.jsonl"), "a.jsonl");
  EXPECT_EQ(name_of("s3://data/web", "web/2026/a.jsonl"), "2026/a.jsonl");
  EXPECT_EQ(name_of("s3://data/web/2026", "web/2026/a b\u00e9.jsonl"), "a b\u00e9.jsonl");
  EXPECT_EQ(name_of("gs://data", "a.jsonl"), "a.jsonl");
  EXPECT_EQ(name_of("gs://data", "..a/b..c"), "..a/b..c");
}

TEST(Fetch, NoNameLeadsOut) {
  for (const char* key :
       {"web/..", "web/../x", "web/a/../../x", "web/a/..", "web//etc/passwd", "web/./../x"}) {
    EXPECT_EQ(name_of("s3://data/web", key), "refused") << key;
  }
  EXPECT_EQ(name_of("s3://data", "/etc/passwd"), "refused");
  EXPECT_EQ(name_of("az://data", ".."), "refused");
}

}  // namespace fetch_test
}  // namespace lockstep::objects
