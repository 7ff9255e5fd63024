#ifndef DDPRUN_TESTS_SUPPORT_SAMPLE_MESSAGES_H_
#define DDPRUN_TESTS_SUPPORT_SAMPLE_MESSAGES_H_

#include <string>
#include <vector>

#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/service_message.h"
#include "rendezvous/core/worker_failure.h"

namespace ddprun::rendezvous {

// A failure with every field set to something else than its default.
WorkerFailure SampleFailure();

// One valid message of each kind, every field set to something else than its default.
std::vector<AgentMessage> SampleAgentMessages();
std::vector<ServiceMessage> SampleServiceMessages();

// The first message of an agent: `nodes` nodes of one worker each.
AgentMessage SampleJoin(const std::string& run_id, const std::string& node_id, uint32_t nodes = 1);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_SUPPORT_SAMPLE_MESSAGES_H_
