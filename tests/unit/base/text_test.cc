#include "base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;

TEST(WrapText, BreaksAtBlanks) {
  EXPECT_THAT(WrapText("one two three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(WrapText("one two three", 6), ElementsAre("one", "two", "three"));
  EXPECT_THAT(WrapText("a incomprehensible b", 5), ElementsAre("a", "incomprehensible", "b"));
  EXPECT_THAT(WrapText("  a   b ", 80), ElementsAre("a b"));
  EXPECT_THAT(WrapText("a\n\nb", 80), ElementsAre("a", "", "b"));
  EXPECT_THAT(WrapText("", 80), ElementsAre(""));
}

TEST(Printable, DropsWhatSteersATerminal) {
  EXPECT_EQ(Printable("\x1b[31mred\x1b[0m"), "red");
  EXPECT_EQ(Printable("\x1b]0;title\a.\x1b]0;title\x1b\\."), "..");
  EXPECT_EQ(Printable("a\x1b"), "a");
  EXPECT_EQ(Printable("a\x1b[12"), "a");
  EXPECT_EQ(Printable("\x1b]0;never ended\nnext"), "\nnext");
  EXPECT_EQ(Printable("\x1b(Bx\x1b"
                      "cy"),
            "xy");
  EXPECT_EQ(Printable(absl::string_view("a\0b\x7f\x08", 5)), "ab");
  EXPECT_EQ(Printable("tab\tand größe"), "tab\tand größe");
  EXPECT_EQ(Printable("10%\r20%\r\n"), "10%\n20%\n");
}

TEST(Printable, LeavesNoControlCharacter) {
  Rng rng(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (uint64_t i = rng.Below(40); i > 0; --i) {
      bytes += rng.Chance(30) ? '\x1b' : static_cast<char>(rng.Below(256));
    }
    for (const char c : Printable(bytes)) {
      const auto byte = static_cast<unsigned char>(c);
      EXPECT_TRUE(byte == '\n' || byte == '\t' || (byte >= 0x20 && byte != 0x7f));
    }
  }
}

TEST(IsUtf8, Table) {
  for (const char* good : {"", "abc", "größe", "€", "😀", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
  for (const char* bad :
       {"\xff", "\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "a\xe2\x82"}) {
    EXPECT_FALSE(IsUtf8(bad));
  }
}

TEST(Shown, CutsBetweenCharacters) {
  EXPECT_EQ(Shown("abcdef", 6), "abcdef");
  EXPECT_EQ(Shown("abcdef", 3), "abc…");
  EXPECT_EQ(Shown("aö", 2), "a…");
  EXPECT_EQ(Shown("öö", 0), "…");
  EXPECT_EQ(Shown("a\n\x1b", 9), "a\\n\\x1b");
  EXPECT_EQ(Shown("ö\xff", 9), "\\xc3\\xb6\\xff");
  EXPECT_EQ(Quoted("a'b"), "'a\\'b'");
}

TEST(BytesText, TakesTheLargestUnitThatFits) {
  EXPECT_EQ(BytesText(0), "0 bytes");
  EXPECT_EQ(BytesText(1023), "1023 bytes");
  EXPECT_EQ(BytesText(1024), "1.0 KiB");
  EXPECT_EQ(BytesText(1536ULL << 20), "1.5 GiB");
  EXPECT_EQ(BytesText(2048ULL << 40), "2048.0 TiB");
}

TEST(Substitute, FollowsPythonsSafeSubstitute) {
  const std::map<std::string, std::string> values = {{"a", "1"}, {"a_b", "2"}};
  const struct {
    const char* text;
    const char* result;
  } kCases[] = {
      {"$a", "1"},    {"${a}", "1"},
      {"$a_b", "2"},  {"$a-b", "1-b"},
      {"$A", "$A"},   {"$$", "$"},
      {"$$a", "$a"},  {"$$$a", "$1"},
      {"${a", "${a"}, {"${ a}", "${ a}"},
      {"${}", "${}"}, {"$", "$"},
      {"$1", "$1"},   {"${a}${x}$a", "1${x}1"},
      {"", ""},       {"${$a}", "${1}"},
  };
  for (const auto& c : kCases) EXPECT_EQ(Substitute(c.text, values), c.result) << c.text;
}

TEST(CountText, OneIsSingular) {
  EXPECT_EQ(CountText(0, "node"), "0 nodes");
  EXPECT_EQ(CountText(1, "CPU"), "1 CPU");
  EXPECT_EQ(CountText(12, "worker"), "12 workers");
  EXPECT_EQ(CountText("1:2", "node"), "1:2 nodes");
}

}  // namespace
}  // namespace ddprun
