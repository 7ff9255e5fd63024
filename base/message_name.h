#ifndef DDPRUN_BASE_MESSAGE_NAME_H_
#define DDPRUN_BASE_MESSAGE_NAME_H_

#include <string>

namespace ddprun {

// The name of a job or role as messages hold it: UTF-8 without control characters, of at most 256
// bytes (kNameBytesMax of the rendezvous). Any other name, which torchrun takes, is shortened and
// escaped, with a digest of the whole at its end. Pure; threads: any.
std::string NameInMessages(const std::string& name);

}  // namespace ddprun

#endif  // DDPRUN_BASE_MESSAGE_NAME_H_
