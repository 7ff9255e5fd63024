#ifndef DDPRUN_TOOLS_PREFLIGHT_CORE_LINK_FACTS_H_
#define DDPRUN_TOOLS_PREFLIGHT_CORE_LINK_FACTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace ddprun::launcher {

// Measurements between the nodes of a job, and their plan. Nodes are numbered as in the job
// (GROUP_RANK), from 0. Plain data; threads: any.

// The direction from one node to another; the opposite direction is another link.
struct Link {
  uint32_t from = 0;
  uint32_t to = 0;

  friend auto operator<=>(const Link&, const Link&) = default;
};

// The measurements of all nodes in one pass.
struct ProbePlan {
  uint32_t datagrams = 0;  // sent along each of `links`, by all nodes at once
  std::vector<Link> links;
  // After the datagrams, the rounds run one after the other. In a round, each pair floods one TCP
  // connection, opened by `from`, first in one direction and then in the other. A node is in at
  // most one pair of a round.
  std::vector<std::vector<Link>> rounds;
  bool over = false;  // nothing is left to measure

  friend bool operator==(const ProbePlan&, const ProbePlan&) = default;
};

// A node's measurements of another one in a pass.
struct PeerMeasurement {
  uint32_t peer = 0;
  uint32_t arrived = 0;                      // datagrams from the peer in this pass
  std::optional<absl::Duration> round_trip;  // the least; nullopt = no answer came
  std::optional<double> rate;                // bit/s received from the peer over TCP
  bool refused = false;                      // this node couldn't connect to the peer
  bool connected = false;                    // this node's connection to the peer was answered

  friend bool operator==(const PeerMeasurement&, const PeerMeasurement&) = default;
};

// A node's answer to a pass.
struct NodeMeasurements {
  std::vector<PeerMeasurement> peers;
  uint64_t overrun = 0;                // datagrams that this node's socket had no room for
  std::optional<absl::Duration> work;  // CPU time of a fixed piece of work, the least

  friend bool operator==(const NodeMeasurements&, const NodeMeasurements&) = default;
};

// All passes together.
struct LinkFacts {
  uint32_t sent = 0;                         // datagrams
  uint32_t arrived = 0;                      // datagrams
  bool told = false;                         // node `to` has answered
  std::vector<double> rates;                 // bit/s, one for each measurement
  std::optional<absl::Duration> round_trip;  // the least that either end measured
  uint32_t refused = 0;                      // TCP connections from `from` that failed
  uint32_t connected = 0;

  double Loss() const;  // share of the sent datagrams, 0 to 1
  std::optional<double> BestRate() const;
};

struct NodeFacts {
  std::string name;     // for people, different for each node
  std::string address;  // under which the others reach the node; "" = not known
  bool told = false;    // the node came to the check, and has answered each pass
  // The node never came, but its datagrams reach node 0: only the link to the node is cut.
  bool heard = false;
  bool missing = false;                // the node never joined the job
  std::optional<absl::Duration> work;  // the least CPU time
};

struct NetworkFacts {
  std::vector<NodeFacts> nodes;
  std::vector<LinkFacts> links;  // by from * nodes + to

  LinkFacts& At(Link link) { return links[link.from * nodes.size() + link.to]; }
  const LinkFacts& At(Link link) const { return links[link.from * nodes.size() + link.to]; }
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_PREFLIGHT_CORE_LINK_FACTS_H_
