// Tests of the confusion matrix image.
#include "metrics/confusion_picture.h"

#include <gtest/gtest.h>

namespace lockstep::metrics {
namespace confusion_picture_test {

TEST(ConfusionPicture, ShowsCountsSharesAndNames) {
  const std::string text =
      draw_confusion({{3, 1, 0}, {0, 2, 0}, {0, 0, 0}}, {"a<b", std::string(40, 'x'), "none"});
  EXPECT_EQ(
      text,
      draw_confusion({{3, 1, 0}, {0, 2, 0}, {0, 0, 0}}, {"a<b", std::string(40, 'x'), "none"}));
  for (const std::string part :
       {"accuracy 0.8333 of 6", "a&lt;b", ">0.75<", "#08306b", "url(#none)", "true label"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
  EXPECT_NE(text.find(std::string(24, 'x') + "\u2026<"), std::string::npos);
  EXPECT_EQ(text.find(std::string(25, 'x')), std::string::npos);
}

TEST(ConfusionPicture, OfManyClassesHasNoNumbersInCells) {
  const Matrix matrix(77, std::vector<double>(77, 5));
  const std::string text = draw_confusion(matrix, std::vector<std::string>(77, "name"));
  EXPECT_EQ(text.find(">5<"), std::string::npos);
  EXPECT_NE(text.find("rotate(-90)"), std::string::npos);
}

}  // namespace confusion_picture_test
}  // namespace lockstep::metrics
