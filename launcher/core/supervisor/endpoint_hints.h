#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_ENDPOINT_HINTS_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_ENDPOINT_HINTS_H_

#include <optional>
#include <string>

#include "base/instant.h"
#include "launcher/core/agent_settings.h"
#include "launcher/core/supervisor/supervisor_events.h"
#include "rendezvous/core/service_message.h"

namespace ddprun::launcher {

// Hints at what may be wrong with the endpoint that the user gave, when no service answers there or
// no other node joins. Each hint is given once: two seconds after a node is alone at a loopback
// address; after ten in other cases, because nodes that a scheduler starts together have joined by
// then. An address that isn't this machine's may be wrong or translated (NAT), so it is only a
// hint. Pure; one thread.
class EndpointHints {
 public:
  // `several_nodes`: the job may have more nodes, which can't reach a loopback address.
  EndpointHints(EndpointName endpoint, bool several_nodes);

  void OnEndpoint(const EndpointFound& found);
  void OnStandby(Instant now, const rendezvous::Standby& standby);
  // A generation begins: nobody is missing.
  void OnAssigned() {
    told_ = true;
    tell_at_ = Instant::Infinite();
  }
  // The text for the user, when it is due.
  std::optional<std::string> OnTimer(Instant now);
  // When OnTimer is wanted; infinite = not at all.
  Instant Deadline() const { return tell_at_; }

  // A sentence on why no service answers at the endpoint, with a blank before it; "" = not known.
  std::string WhyNobodyAnswers() const;
  // The same if the endpoint's host name doesn't resolve.
  std::string WhyUnknown() const;

  // Which invariant of the fields below is broken; "" = none.
  std::string BrokenInvariant() const;

 private:
  bool HasHint() const {
    return keeps_others_away_ || is_strange_ || !endpoint_.alone_hint.empty();
  }
  std::string LoopbackText() const;

  EndpointName endpoint_;
  bool several_nodes_;
  bool keeps_others_away_ = false;  // only with several_nodes_
  bool is_strange_ = false;         // served here under an address that isn't ours; as above
  bool is_elsewhere_ = false;       // the endpoint isn't on this node, as far as is known
  bool port_is_taken_ = false;      // by another process of this node
  std::string port_advice_;
  bool told_ = false;                      // hint given, or others came; tell_at_ stays infinite
  Instant tell_at_ = Instant::Infinite();  // finite only with HasHint()
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_ENDPOINT_HINTS_H_
