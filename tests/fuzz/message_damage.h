#ifndef DDPRUN_TESTS_FUZZ_MESSAGE_DAMAGE_H_
#define DDPRUN_TESTS_FUZZ_MESSAGE_DAMAGE_H_

#include <google/protobuf/message.h>

#include "tests/fuzz/input_bytes.h"

namespace ddprun {

// Sets, adds or drops one field somewhere in the message, as the bytes say: mostly to something at
// the edge of a range.
void DamageMessage(InputBytes* bytes, google::protobuf::Message* message);

}  // namespace ddprun

#endif  // DDPRUN_TESTS_FUZZ_MESSAGE_DAMAGE_H_
