#include "launcher/core/supervisor/endpoint_hints.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kNotifyLonelyAfter = absl::Seconds(2);
constexpr absl::Duration kNotifyAloneAfter = absl::Seconds(10);

}  // namespace

EndpointHints::EndpointHints(EndpointName endpoint, bool several_nodes)
    : endpoint_(std::move(endpoint)), several_nodes_(several_nodes) {}

void EndpointHints::OnEndpoint(const EndpointFound& found) {
  keeps_others_away_ = found.is_loopback && several_nodes_;
  is_strange_ = found.is_strange && several_nodes_;
  is_elsewhere_ = !found.node_address.empty() && !found.hosts_service && !found.hosts_endpoint;
  port_is_taken_ = found.port_is_taken;
  port_advice_ = found.port_advice;
}

void EndpointHints::OnStandby(Instant now, const rendezvous::Standby& standby) {
  // Another node has joined once, so the endpoint is right.
  told_ = told_ || standby.nodes_present > 1;
  const bool alone = HasHint() && standby.nodes_present <= 1 && !standby.spare;
  if (!alone || told_) {
    tell_at_ = Instant::Infinite();
  } else if (tell_at_.is_infinite()) {
    tell_at_ = now + (keeps_others_away_ ? kNotifyLonelyAfter : kNotifyAloneAfter);
  }
}

std::optional<std::string> EndpointHints::OnTimer(Instant now) {
  if (now < tell_at_) return std::nullopt;
  tell_at_ = Instant::Infinite();
  told_ = true;
  if (keeps_others_away_) return absl::StrCat("no other node has come, and", LoopbackText());
  if (!is_strange_) return absl::StrCat("no other node has come. ", endpoint_.alone_hint);
  return absl::StrCat(
      "no other node has come. They look for the job at ", endpoint_.text,
      ", which is no address of this machine, and find it only if that address is "
      "translated to one of this machine's; else give every node an address of this "
      "machine (--master_addr or --rdzv_endpoint)");
}

std::string EndpointHints::WhyNobodyAnswers() const {
  if (port_is_taken_) {
    const std::string port = endpoint_.text.substr(endpoint_.text.rfind(':') + 1);
    return absl::StrCat(" Another process of this machine has port ", port,
                        " and is no rendezvous service that this node can use (see it with: ss "
                        "-ltnp 'sport = :",
                        port, "'): end it, or give another port in --rdzv_endpoint on all nodes",
                        port_advice_);
  }
  if (keeps_others_away_) return absl::StrCat(" Note that", LoopbackText());
  if (!endpoint_.hosts_by_address || !is_elsewhere_) return "";
  return " No address of this node is that one's; if it is translated on the way to this node, "
         "give --rdzv_conf is_host=1 here";
}

std::string EndpointHints::WhyUnknown() const {
  return endpoint_.name_hint.empty() ? "" : absl::StrCat(" ", endpoint_.name_hint);
}

std::string EndpointHints::LoopbackText() const {
  return absl::StrCat(" ", endpoint_.text,
                      " is this machine's loopback, which no other machine can reach: give every "
                      "other node an address of the host (--master_addr or --rdzv_endpoint)");
}

std::string EndpointHints::BrokenInvariant() const {
  if ((keeps_others_away_ || is_strange_) && !several_nodes_)
    return "a single node is kept from others";
  if (!tell_at_.is_infinite() && (told_ || !HasHint())) {
    return "a hint is due that was given, or doesn't exist";
  }
  return "";
}

}  // namespace ddprun::launcher
