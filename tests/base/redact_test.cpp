// Tests the removal of credentials.
#include "base/redact.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace redact_test {

std::string without(const std::string& text) {
  return redacted(text, {});
}

TEST(Redact, UsersAndQueriesOfUrls) {
  EXPECT_EQ(without("http://me:pass@host:4318/v1"), "http://***@host:4318/v1");
  EXPECT_EQ(without("see 'ftp://me@host/a' and b@c"), "see 'ftp://***@host/a' and b@c");
  EXPECT_EQ(without("'https://host/a?sig=x&sp=r' failed"), "'https://host/a?***' failed");
  EXPECT_EQ(without("http://a?b=1 http://c?d=2"), "http://a?*** http://c?***");
  EXPECT_EQ(without("is it http://host?"), "is it http://host?");
  EXPECT_EQ(without("http://host/path@version"), "http://host/path@version");
}

TEST(Redact, PatternsOfObjectsAreNotQueries) {
  EXPECT_EQ(without("s3://work/part-?.jsonl is empty"), "s3://work/part-?.jsonl is empty");
}

TEST(Redact, ParametersAndHeaders) {
  EXPECT_EQ(without("sv=2024&SIG=a%2Bb&sp=r"), "sv=2024&SIG=***&sp=r");
  EXPECT_EQ(without("X-Amz-Signature=0123, next"), "X-Amz-Signature=***, next");
  EXPECT_EQ(without("AccountKey=abc==;EndpointSuffix=x"), "AccountKey=***;EndpointSuffix=x");
  EXPECT_EQ(
      without("authorization: SharedKey me:abc=\r\nhost: a"), "authorization: ***\r\nhost: a");
  EXPECT_EQ(without("key AKIAIOSFODNN7EXAMPLE is unknown"), "key *** is unknown");
  EXPECT_EQ(
      without("unlearning.question_key=frage design=1"), "unlearning.question_key=frage design=1");
}

TEST(Redact, SecretsRawAndPercentEncoded) {
  const std::vector<std::string> secrets{"a+b/c=de"};
  EXPECT_EQ(redacted("x a+b/c=de y", secrets), "x *** y");
  EXPECT_EQ(redacted("x a%2Bb%2fc%3Dde y", secrets), "x *** y");
  EXPECT_EQ(redacted("x a%2Bb/c=de", secrets), "x ***");
  EXPECT_EQ(redacted("x a%2Bb/c=d%", secrets), "x a%2Bb/c=d%");
}

TEST(Redact, SecretsOfTheEnvironment) {
  ::setenv("LOCKSTEP_TEST_TOKEN", "canary%2Fcanary", 1);
  ::setenv("LOCKSTEP_TEST_SAS_TOKEN", "sv=1&sig=signature%2Bsignature&sp=r", 1);
  ::setenv("LOCKSTEP_SHORT_KEY", "short", 1);
  const Error error(
      ErrorKind::kEnvironment, "canary%2Fcanary, canary/canary, signature+signature, short");
  ::unsetenv("LOCKSTEP_TEST_TOKEN");
  ::unsetenv("LOCKSTEP_TEST_SAS_TOKEN");
  ::unsetenv("LOCKSTEP_SHORT_KEY");
  EXPECT_EQ(error.message(), "***, ***, ***, short");
}

TEST(Redact, TwiceIsTheSame) {
  const std::string once = without("http://me:pass@host/?a=b sig=c");
  EXPECT_EQ(without(once), once);
}

TEST(Redact, NamesOfSecrets) {
  EXPECT_TRUE(is_secret_name("WANDB_API_KEY"));
  EXPECT_TRUE(is_secret_name("hub_token"));
  EXPECT_FALSE(is_secret_name("monkey"));
  EXPECT_FALSE(is_secret_name("HOME"));
}

}  // namespace redact_test
}  // namespace lockstep
