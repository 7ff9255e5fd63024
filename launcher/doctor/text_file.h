#ifndef DDPRUN_LAUNCHER_DOCTOR_TEXT_FILE_H_
#define DDPRUN_LAUNCHER_DOCTOR_TEXT_FILE_H_

#include <string>
#include <vector>

namespace ddprun::launcher {

// Small files of the kernel, for probes that take one that can't be read for an empty one.
// Threads: any.

// The first MiB of it; "" = it can't be read.
std::string TextOfFile(const std::string& path);
// Its first line without blanks around, safe to show, at most 200 bytes; "" as above.
std::string FirstLine(const std::string& path);
// The names in a folder but "." and "..", sorted; none when it can't be read.
std::vector<std::string> NamesIn(const std::string& folder);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_TEXT_FILE_H_
