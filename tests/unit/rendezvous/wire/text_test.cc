#include "rendezvous/wire/field_checker.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {
namespace {

TEST(CutText, LeavesWhatFits) {
  EXPECT_EQ(CutText("", 3), "");
  EXPECT_EQ(CutText("abc", 3), "abc");
  EXPECT_EQ(CutText("größe 😀", 12), "größe 😀");
}

TEST(CutText, CutsAtACharacterBorder) {
  EXPECT_EQ(CutText("abcdefg", 6), "abc…");
  EXPECT_EQ(CutText("abß", 3), "…");
  EXPECT_EQ(CutText("ßßßß", 6), "ß…");  // 3 bytes are left: one whole character
  EXPECT_EQ(CutText("😀😀", 7), "😀…");
  EXPECT_EQ(CutText("😀😀", 6), "…");
}

TEST(CutText, NeverExceedsTheBoundNorBreaksACharacter) {
  const std::string text = "aß…😀\xFFzä";
  for (size_t bound = 3; bound < 30; ++bound) {
    for (size_t length = 0; length <= text.size(); ++length) {
      for (const std::string& cut :
           {CutText(text.substr(0, length), bound), CutTextFront(text.substr(length), bound)}) {
        EXPECT_LE(cut.size(), bound);
        EXPECT_EQ(ValidUtf8(cut), cut);
      }
    }
  }
}

TEST(CutTextFront, KeepsTheEnd) {
  EXPECT_EQ(CutTextFront("abc", 3), "abc");
  EXPECT_EQ(CutTextFront("abcdefg", 6), "…efg");
  EXPECT_EQ(CutTextFront("ßßßß", 6), "…ß");
}

TEST(ValidUtf8, ReplacesEachBadByte) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(ValidUtf8("a\xFF"), absl::StrCat("a", bad));
  EXPECT_EQ(ValidUtf8("\x80z"), absl::StrCat(bad, "z"));                       // lone continuation
  EXPECT_EQ(ValidUtf8("\xC0\xAF"), absl::StrCat(bad, bad));                    // overlong '/'
  EXPECT_EQ(ValidUtf8("\xE0\x80\x80"), absl::StrCat(bad, bad, bad));           // overlong NUL
  EXPECT_EQ(ValidUtf8("\xED\xA0\x80"), absl::StrCat(bad, bad, bad));           // surrogate
  EXPECT_EQ(ValidUtf8("\xF4\x90\x80\x80"), absl::StrCat(bad, bad, bad, bad));  // U+110000
  EXPECT_EQ(ValidUtf8("\xF0\x9F\x98"), absl::StrCat(bad, bad, bad));           // cut short
  EXPECT_EQ(ValidUtf8("\xF4\x8F\xBF\xBF"), "\xF4\x8F\xBF\xBF");                // U+10FFFF
  EXPECT_EQ(ValidUtf8(std::string("a\0b", 3)), std::string("a\0b", 3));
}

}  // namespace
}  // namespace ddprun::rendezvous
