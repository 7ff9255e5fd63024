#ifndef DDPRUN_LAUNCHER_PREFLIGHT_CORE_LINK_FACTS_H_
#define DDPRUN_LAUNCHER_PREFLIGHT_CORE_LINK_FACTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace ddprun::launcher {

// What the nodes of a job measure of each other, and in which order. Nodes are their numbers in the
// job (GROUP_RANK), from 0. Plain data; threads: any.

// From one node to another; the opposite direction is another link.
struct Link {
  uint32_t from = 0;
  uint32_t to = 0;

  friend auto operator<=>(const Link&, const Link&) = default;
};

// What all nodes are asked to do in one pass.
struct ProbePlan {
  uint32_t datagrams = 0;  // that `from` sends along each of `links`, all nodes at once
  std::vector<Link> links;
  // Then, one round after the other, each pair over one TCP connection, which `from` makes: as much
  // as goes through in one direction, then in the other. A node is in at most one pair of a round.
  std::vector<std::vector<Link>> rounds;
  bool over = false;  // nothing is left to be measured

  friend bool operator==(const ProbePlan&, const ProbePlan&) = default;
};

// What a node saw of another one in a pass.
struct PeerMeasurement {
  uint32_t peer = 0;
  uint32_t arrived = 0;                      // datagrams of that pass
  std::optional<absl::Duration> round_trip;  // the least; nullopt = no answer came
  std::optional<double> rate;                // bit/s that came from the peer over TCP
  bool refused = false;                      // the peer could not be connected
  bool connected = false;                    // a connection that this node made was answered

  friend bool operator==(const PeerMeasurement&, const PeerMeasurement&) = default;
};

// A node's answer to a pass.
struct NodeMeasurements {
  std::vector<PeerMeasurement> peers;
  uint64_t overrun = 0;                // datagrams that this node itself had no room for
  std::optional<absl::Duration> work;  // CPU time of a fixed piece of work, the least

  friend bool operator==(const NodeMeasurements&, const NodeMeasurements&) = default;
};

// All passes together.
struct LinkFacts {
  uint32_t sent = 0;  // datagrams, and how many of them arrived
  uint32_t arrived = 0;
  bool told = false;                         // `to` has answered
  std::vector<double> rates;                 // bit/s, one of each measurement
  std::optional<absl::Duration> round_trip;  // the least that either end saw
  uint32_t refused = 0;                      // TCP connections from `from` that could not be made
  uint32_t connected = 0;

  double Loss() const;  // share of what was sent, 0 to 1
  std::optional<double> BestRate() const;
};

struct NodeFacts {
  std::string name;     // for people, different for each node
  std::string address;  // under which the others reach it; "" = not known
  bool told = false;    // it came to the check, and has answered each pass
  // It never came, though its datagrams reach node 0: only the link to it is cut.
  bool heard = false;
  bool missing = false;                // it never joined the job, so it is no part of the check
  std::optional<absl::Duration> work;  // the least CPU time
};

struct NetworkFacts {
  std::vector<NodeFacts> nodes;
  std::vector<LinkFacts> links;  // by from * nodes + to

  LinkFacts& At(Link link) { return links[link.from * nodes.size() + link.to]; }
  const LinkFacts& At(Link link) const { return links[link.from * nodes.size() + link.to]; }
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PREFLIGHT_CORE_LINK_FACTS_H_
