#include "core/text/utf8.h"

#include <gtest/gtest.h>

namespace invar {
namespace {

// The verdict must not depend on where the text is cut.
int64_t bad_offset_of(std::string_view text) {
  int64_t result = -2;
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Utf8Checker checker;
    const bool good = checker.feed(text.substr(0, cut)) && checker.feed(text.substr(cut)) && checker.finish();
    const int64_t offset = good ? -1 : checker.bad_offset();
    if (result != -2) {
      EXPECT_EQ(offset, result) << "cut at " << cut;
    }
    result = offset;
  }
  return result;
}

TEST(Utf8, AcceptsEveryBoundaryCharacter) {
  for (uint32_t c : {0x00u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xD7FFu, 0xE000u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    EXPECT_EQ(bad_offset_of("a" + utf8_of(c) + "z"), -1) << c;
  }
}

TEST(Utf8, RejectsOverlongSurrogatesAndTooLarge) {
  EXPECT_EQ(bad_offset_of("\xC0\xAF"), 0);
  EXPECT_EQ(bad_offset_of("a\xE0\x80\xAF"), 2);
  EXPECT_EQ(bad_offset_of("\xED\xA0\x80"), 1);
  EXPECT_EQ(bad_offset_of("\xF0\x80\x80\x80"), 1);
  EXPECT_EQ(bad_offset_of("\xF4\x90\x80\x80"), 1);
  EXPECT_EQ(bad_offset_of("\xF5"), 0);
  EXPECT_EQ(bad_offset_of("abc\x80"), 3);
  EXPECT_EQ(bad_offset_of("abc\xFF"), 3);
}

TEST(Utf8, RejectsATextThatEndsInsideACharacter) { EXPECT_EQ(bad_offset_of("ab\xE2\x82"), 4); }

TEST(Utf8, LossyTextReplacesEachUnfinishedSequenceOnce) {
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(lossy_utf8("a\xC3\xA4z"), "a\xC3\xA4z");
  EXPECT_EQ(lossy_utf8("a\xFFz"), "a" + mark + "z");
  EXPECT_EQ(lossy_utf8("\xE2\x82"), mark);
  EXPECT_EQ(lossy_utf8("\xE2\x82z\xF0\x9F\x98"), mark + "z" + mark);
  EXPECT_EQ(lossy_utf8("\xED\xA0\x80"), mark + mark + mark);
  EXPECT_EQ(lossy_utf8("\x80\x80"), mark + mark);
}

}  // namespace
}  // namespace invar
