#ifndef DDPRUN_BASE_ERROR_LINE_H_
#define DDPRUN_BASE_ERROR_LINE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// Returns the line of a program's last output that says why it ended, without the stack:
//   the exception below Python's last traceback ("ModuleNotFoundError: No module named 'cv2'"),
//   also if torch.distributed put "[rank1]: " before each of its lines;
//   else the text of a C++ exception ("  what():  out of range");
//   else the last line in which an interpreter, shell or option parser reports an error ("train.py:
//   error: unrecognized arguments: --lr", "python3: can't open file 'x'"), or that begins with
//   "Error: ".
// "" = no line is of these kinds: any other last line may be about anything. The line has no blanks
// at its ends. Pure; threads: any.
std::string ErrorLine(absl::string_view last_words);

}  // namespace ddprun

#endif  // DDPRUN_BASE_ERROR_LINE_H_
