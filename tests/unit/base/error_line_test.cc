#include "base/text.h"

#include <gtest/gtest.h>

#include <string>

namespace ddprun {
namespace {

constexpr char kTraceback[] =
    "Traceback (most recent call last):\n  File \"train.py\", line 1, in <module>\n";

std::string AfterTraceback(const std::string& text) { return ErrorLine(kTraceback + text); }

TEST(ErrorLine, TheExceptionBelowTheLastTraceback) {
  EXPECT_EQ(AfterTraceback("    import cv2\nModuleNotFoundError: No module named 'cv2'\n"),
            "ModuleNotFoundError: No module named 'cv2'");
  EXPECT_EQ(AfterTraceback("mine.Bad: of the user's own kind\nmore of it\n"),
            "mine.Bad: of the user's own kind");
  EXPECT_EQ(AfterTraceback("KeyError: 1\n\nDuring handling of the above exception, another "
                           "exception occurred:\n\n") +
                " | " +
                AfterTraceback(std::string("KeyError: 1\n\n") + kTraceback +
                               "ValueError: the second one\n"),
            "KeyError: 1 | ValueError: the second one");
  EXPECT_EQ(AfterTraceback("    x\n"), "") << "it is cut off";
}

TEST(ErrorLine, ATracebackThatEndedNothing) {
  EXPECT_EQ(AfterTraceback(std::string("ValueError: bad\nException ignored in: <function f>\n") +
                           kTraceback + "TypeError: 'NoneType' object is not callable\n"),
            "ValueError: bad");
}

// The lines are those of torch.distributed once there is a process group.
TEST(ErrorLine, WithTheRankBeforeEachLine) {
  EXPECT_EQ(ErrorLine("[rank1]: Traceback (most recent call last):\n[rank1]:   File \"t.py\", line "
                      "5, in <module>\n[rank1]: ValueError: bad batch\n[rank1]: more of it\n"),
            "ValueError: bad batch");
  EXPECT_EQ(ErrorLine("[rank12]:     raise x\n[rank12]: KeyError: 'lr'\n"), "KeyError: 'lr'");
  EXPECT_EQ(ErrorLine("[rank]: ValueError: bad\n[rank1] KeyError: 1\n"), "");
}

TEST(ErrorLine, WithoutATraceback) {
  EXPECT_EQ(ErrorLine("  File \"t.py\", line 3\n    if\n      ^\nSyntaxError: invalid syntax\n"),
            "SyntaxError: invalid syntax");
  EXPECT_EQ(ErrorLine("KeyboardInterrupt\n"), "KeyboardInterrupt");
  EXPECT_EQ(ErrorLine("terminate called after throwing an instance of 'std::out_of_range'\n"
                      "  what():  map::at\n"),
            "what():  map::at");
  EXPECT_EQ(ErrorLine("usage: t.py [-h]\nt.py: error: unrecognized arguments: --lr\n"),
            "t.py: error: unrecognized arguments: --lr");
  EXPECT_EQ(ErrorLine("loading\nError: no data in /data\n"), "Error: no data in /data");
  EXPECT_EQ(ErrorLine("/usr/bin/python3: No module named nosuch\n"),
            "/usr/bin/python3: No module named nosuch");
}

// Negative controls: what no line of these kinds says isn't guessed.
TEST(ErrorLine, OtherWords) {
  EXPECT_EQ(ErrorLine(""), "");
  EXPECT_EQ(ErrorLine("epoch 1\nsaved\n"), "");
  EXPECT_EQ(ErrorLine("Error in my own words\n"), "");
  EXPECT_EQ(ErrorLine("UserWarning: slow\n"), "");
}

}  // namespace
}  // namespace ddprun
