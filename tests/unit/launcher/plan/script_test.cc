// What ddprun takes for a script in Python.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

// The first line is a shell's, and all that follows Python's.
TEST(Script, ScriptsThatAShellGivesToPythonAreScripts) {
  const std::string firsts[] = {"#!/bin/sh",
                                "#!/bin/sh -e",
                                "#! /bin/dash",
                                "#!/usr/bin/env bash",
                                "#!/bin/bash -l",
                                "#!/usr/bin/env -S sh -eu",
                                "#!/" + std::string(200, 'x') + "/sh",
                                "\xef\xbb\xbf#!/bin/sh"};
  const char* const seconds[] = {"'''exec' \"/long/python3\" \"$0\" \"$@\"\n' '''",
                                 "\"exec\" \"$(dirname $0)/python3\" \"$0\" \"$@\"",
                                 "\"\"\":\"\nexec python3 \"$0\" \"$@\"\n\"\"\"",
                                 "''':'\nexec python3 \"$0\" \"$@\"\n'''",
                                 "r'''exec' python3 \"$0\"\n'''",
                                 "import torch",
                                 "from torch import nn"};
  const char* const betweens[] = {"", "\n\n", "# -*- coding: utf-8 -*-\n", "#\n\n  \n# by hand\n"};
  FakeHost host;
  for (const std::string& first : firsts) {
    for (const char* between : betweens) {
      for (const char* second : seconds) {
        std::string text = absl::StrCat(first, "\n", between, second, "\nprint(1)\n");
        for (const bool crlf : {false, true}) {
          if (crlf) text = absl::StrReplaceAll(text, {{"\n", "\r\n"}});
          host.files["run.sh"] = text;
          EXPECT_EQ(ExitOf(Parse({"run.sh"}, {}, host)).status, -1) << text;
        }
      }
    }
  }
}

// Negative control: nothing that Python reads.
TEST(Script, ScriptsOfAShellAreNone) {
  FakeHost host;
  for (const char* text :
       {"#!/bin/sh\necho 'hello'\n", "#!/bin/sh\n# '''\nexec python3 train.py\n", "#!/bin/sh\n",
        "#!/bin/sh\nbuffer=1\n", "#!/bin/sh", "#!/bin/sh\nimportant=1\n"}) {
    host.files["run.sh"] = text;
    EXPECT_THAT(ExitOf(Parse({"run.sh"}, {}, host)).text, HasSubstr("is a shell script")) << text;
  }
}

// Whatever its first line says, a file of that name is Python's.
TEST(Script, NamedAsPythonIsPython) {
  FakeHost host;
  host.files["train.py"] = "#!/bin/bash\nx = 1\n";
  EXPECT_EQ(ExitOf(Parse({"train.py"}, {}, host)).status, -1);
}

}  // namespace
}  // namespace ddprun::launcher
