#ifndef DDPRUN_TESTS_SUPPORT_TRACE_TEXT_H_
#define DDPRUN_TESTS_SUPPORT_TRACE_TEXT_H_

#include <functional>
#include <string>

#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/events.h"
#include "rendezvous/core/service_message.h"
#include "rendezvous/core/views.h"

// Events and effects as one line of text each, for datadriven tests and for reading what a
// simulation did. Pure.
namespace ddprun::rendezvous {

// How a stream is called; the default is "s<key>".
using StreamNamer = std::function<std::string(StreamKey)>;

std::string DefaultStreamName(StreamKey stream);

std::string TraceText(const ServiceMessage& message);
std::string TraceText(const AgentMessage& message);
std::string TraceText(const Effect& effect, const StreamNamer& name = DefaultStreamName);
std::string TraceText(const Event& event, const StreamNamer& name = DefaultStreamName);

// The job and its nodes, one line each.
std::string TraceText(const JobView& view);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_SUPPORT_TRACE_TEXT_H_
