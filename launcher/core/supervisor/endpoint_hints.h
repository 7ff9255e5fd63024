#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_ENDPOINT_HINTS_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_ENDPOINT_HINTS_H_

#include <optional>
#include <string>

#include "base/instant.h"
#include "launcher/core/agent_settings.h"
#include "launcher/core/supervisor/supervisor_events.h"
#include "rendezvous/core/message.h"

namespace ddprun::launcher {

// What may be wrong with the endpoint that the user gave: nobody answers there, or nobody else
// comes. A node that stays alone at a loopback address is told so once, after two seconds; another
// one, and one whose address is not its own (a translated address isn't known from a wrong one), is
// given its hint after ten, in which nodes that a scheduler starts together have joined.
// Pure; one thread.
class EndpointHints {
 public:
  // `several_nodes`: the job may have more than one node, which a loopback address keeps away.
  EndpointHints(EndpointName endpoint, bool several_nodes);

  void OnEndpoint(const EndpointFound& found);
  void OnStandby(Instant now, const rendezvous::Standby& standby);
  // A generation begins: nobody is missing.
  void OnAssigned() {
    told_ = true;
    tell_at_ = Instant::Infinite();
  }
  // What the user is to know, when it is time.
  std::optional<std::string> OnTimer(Instant now);
  // When OnTimer is wanted; infinite = not at all.
  Instant Deadline() const { return tell_at_; }

  // A sentence for somebody at whose endpoint nobody answers, with a blank before it; "" = nothing
  // stands out.
  std::string WhyNobodyAnswers() const;
  // The same if the resolver doesn't know the endpoint's host.
  std::string WhyUnknown() const;

  // What doesn't hold of the fields below; "" = all of it does.
  std::string BrokenInvariant() const;

 private:
  bool HasHint() const {
    return keeps_others_away_ || is_strange_ || !endpoint_.alone_hint.empty();
  }
  std::string LoopbackText() const;

  EndpointName endpoint_;
  bool several_nodes_;
  bool keeps_others_away_ = false;  // only with several_nodes_
  bool is_strange_ = false;         // served here, under an address of elsewhere; as above
  bool is_elsewhere_ = false;       // not on this node, as far as it knows itself
  bool port_is_taken_ = false;      // by another process of this node
  std::string port_advice_;
  bool told_ = false;                      // or others came; then tell_at_ stays infinite
  Instant tell_at_ = Instant::Infinite();  // finite only with HasHint()
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_ENDPOINT_HINTS_H_
