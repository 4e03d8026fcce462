// Tests of object-store locations.
#include "objects/store.h"

#include <gtest/gtest.h>

namespace lockstep::objects {
namespace store_test {

TEST(ObjectStore, WordsAreToldFromPaths) {
  EXPECT_TRUE(is_remote("s3://bucket/key"));
  EXPECT_TRUE(is_remote("gs://bucket"));
  EXPECT_TRUE(is_remote("az://container/key"));
  for (const char* path : {"s3", "s3:/bucket", "./s3://bucket", "file:///x", "/s3://x", ""}) {
    EXPECT_FALSE(is_remote(path)) << path;
  }
}

TEST(ObjectStore, APlaceIsABucketAndAKey) {
  const Location place = parse_location("s3://data/web//2026/");
  EXPECT_EQ(place.bucket, "data");
  EXPECT_EQ(place.key, "web//2026");
  EXPECT_EQ(place.text(), "s3://data/web//2026");
  EXPECT_EQ(place.below("a.jsonl").text(), "s3://data/web//2026/a.jsonl");
  const Location bucket = parse_location("gs://data");
  EXPECT_EQ(bucket.key, "");
  EXPECT_EQ(bucket.text(), "gs://data");
  EXPECT_EQ(bucket.below("x").text(), "gs://data/x");
}

TEST(ObjectStore, CredentialsHaveNoPlaceInAName) {
  for (const char* text : {"s3://", "s3:///key", "s3://KEY:SECRET@bucket/key"}) {
    try {
      parse_location(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_EQ(std::string(error.what()).find("KEY:SECRET"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("AWS_ACCESS_KEY_ID"), std::string::npos);
    }
  }
}

}  // namespace store_test
}  // namespace lockstep::objects
