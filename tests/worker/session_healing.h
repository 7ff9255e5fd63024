#ifndef DDPRUN_TESTS_WORKER_SESSION_HEALING_H_
#define DDPRUN_TESTS_WORKER_SESSION_HEALING_H_

#include <string>

#include "ddprun/session.h"

namespace ddprun::testing {

// The mode of session_probe in which workers are killed, or held up, while they get their state
// from others; the head of session_probe.cc says what it does.
void Heal(Session& session, const std::string& path);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_SESSION_HEALING_H_
