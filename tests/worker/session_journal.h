#ifndef DDPRUN_TESTS_WORKER_SESSION_JOURNAL_H_
#define DDPRUN_TESTS_WORKER_SESSION_JOURNAL_H_

#include <string>

#include "ddprun/session.h"

namespace ddprun::testing {

// The modes of session_probe that write down all that they do, for tests/support/survivors.py,
// same_bits.py and elastic_training.py; the head of session_probe.cc says what.
void Live(Session& session, const std::string& path);
void Bits(Session& session, const std::string& path);
void Walk(Session& session, const std::string& path);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_SESSION_JOURNAL_H_
