#ifndef DDPRUN_TOOLS_DOCTOR_TEXT_FILE_H_
#define DDPRUN_TOOLS_DOCTOR_TEXT_FILE_H_

#include <string>

namespace ddprun::launcher {

// Reads small files of the kernel, for probes that treat an unreadable file as empty. Threads: any.

// The first MiB of a file; "" = it can't be read.
std::string TextOfFile(const std::string& path);
// The first line of a file without surrounding blanks, safe to show, at most 200 bytes; "" as
// above.
std::string FirstLine(const std::string& path);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_DOCTOR_TEXT_FILE_H_
