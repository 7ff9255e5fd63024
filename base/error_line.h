#ifndef DDPRUN_BASE_ERROR_LINE_H_
#define DDPRUN_BASE_ERROR_LINE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// The line of a program's last words that says why it ended, without the stack:
//   the exception below Python's last traceback ("ModuleNotFoundError: No module named 'cv2'"),
//   also where torch.distributed put "[rank1]: " before each of its lines,
//   else what a C++ exception says ("  what():  out of range"),
//   else the last line of an interpreter, shell or option parser about an error ("train.py: error:
//   unrecognized arguments: --lr", "python3: can't open file 'x'"), or that begins with "Error: ".
// "" = no line is of these kinds; a last line of any other kind may be about anything. Returns:
// without blanks at its ends. Pure; threads: any.
std::string ErrorLine(absl::string_view last_words);

}  // namespace ddprun

#endif  // DDPRUN_BASE_ERROR_LINE_H_
