#ifndef DDPRUN_BASE_NULL_TERMINATED_H_
#define DDPRUN_BASE_NULL_TERMINATED_H_

#include <string>
#include <vector>

namespace ddprun {

// Arguments or environment as execve(2) and main() have them: pointers, the last one null. They are
// valid until `texts` or one of its strings changes. Only main() may write through them: execve(2)
// doesn't, but its prototype is older than const. Pure; threads: any.
inline std::vector<char*> NullTerminated(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace ddprun

#endif  // DDPRUN_BASE_NULL_TERMINATED_H_
