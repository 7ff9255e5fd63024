#include "rendezvous/core/failures/first_cause.h"

#include <algorithm>
#include <csignal>
#include <map>
#include <string>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {
namespace {

// ddprun's C++ runtime begins an error about a peer so, of any backend; in lower case as all below.
constexpr const char* kPeerErrorPrefix[] = {"peererror: "};

// Faults of the worker's own machine or settings, which gloo, NCCL and c10d report with the words
// that follow: "DistNetworkError: … name: EADDRINUSE".
constexpr const char* kOwnFaults[] = {
    "duplicate gpu", "eaddrinuse", "ncclunhandledcudaerror",
    "unable to find address for",  // gloo: no such interface
};

// Texts of gloo, NCCL, c10d and the sockets below them when a peer is gone or a collective failed.
constexpr const char* kPeerErrors[] = {
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "socket closed",
    "socket timeout",
    "disterror",
    "distbackenderror",
    "distnetworkerror",
    "diststoreerror",
    "ncclremoteerror",
    "ncclsystemerror",
    "nccl communicator was aborted",
    "watchdog caught collective operation timeout",
    "collective operation timeout",
    "transport/tcp",
    "processgroupgloo",
    "timed out waiting",
    "store->get",
    "remote process exited",
};

constexpr const char* kOutOfMemory[] = {
    "outofmemoryerror",
    "out of memory",
    "memoryerror",
    "std::bad_alloc",
    "defaultcpuallocator: can't allocate memory",
};

template <size_t kSize>
bool MentionsAny(const std::string& lower_text, const char* const (&phrases)[kSize]) {
  return std::any_of(std::begin(phrases), std::end(phrases),
                     [&](const char* phrase) { return absl::StrContains(lower_text, phrase); });
}

// Failures of one node with equal weight, earliest first.
struct Group {
  Instant arrival = Instant::Infinite();
  std::vector<const ReportedFailure*> failures;
};

// Whether neither of two failures of one node came before the other.
bool SameMoment(const WorkerFailure& a, const WorkerFailure& b) {
  return a.after_first_ms == b.after_first_ms;
}

}  // namespace

Evidence Weigh(const WorkerFailure& failure) {
  if (!failure.start_error.empty() || failure.hung) return Evidence::kOwnDeath;
  const std::string text =
      absl::AsciiStrToLower(absl::StrCat(failure.message, "\n", failure.stderr_tail));
  // A library aborts its process when a peer is gone: the signal alone is then no evidence.
  const bool aborted = failure.signal == SIGABRT || failure.signal == SIGPIPE;
  if (failure.signal != 0 && !aborted) return Evidence::kOwnDeath;
  if (MentionsAny(text, kPeerErrorPrefix) ||
      (MentionsAny(text, kPeerErrors) && !MentionsAny(text, kOwnFaults))) {
    return Evidence::kPeerError;
  }
  // SIGPIPE: the reader of its pipe or socket was gone before.
  if (failure.signal == SIGPIPE) return Evidence::kUnexplained;
  if (failure.signal != 0 || MentionsAny(text, kOutOfMemory)) return Evidence::kOwnDeath;
  return failure.message.empty() && failure.stderr_tail.empty() ? Evidence::kUnexplained
                                                                : Evidence::kException;
}

FirstCause FindFirstCause(const std::vector<ReportedFailure>& reported) {
  std::map<std::tuple<Evidence, NodeId>, Group> groups;
  for (const ReportedFailure& report : reported) {
    Group& group = groups[{Weigh(report.failure), report.failure.node_id}];
    group.arrival = std::min(group.arrival, report.arrival);
    group.failures.push_back(&report);
  }
  std::vector<std::pair<Evidence, Group*>> order;
  for (auto& [key, group] : groups) {
    std::stable_sort(group.failures.begin(), group.failures.end(), [](auto* a, auto* b) {
      return std::tie(a->failure.after_first_ms, a->failure.rank) <
             std::tie(b->failure.after_first_ms, b->failure.rank);
    });
    order.emplace_back(std::get<Evidence>(key), &group);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second->arrival) < std::tie(b.first, b.second->arrival);
  });

  FirstCause result;
  std::vector<WorkerFailure> rest;
  for (const auto& [evidence, group] : order) {
    const bool ties = evidence == order.front().first &&
                      group->arrival <= order.front().second->arrival + kArrivalTie;
    for (const ReportedFailure* report : group->failures) {
      const bool first = ties && SameMoment(report->failure, group->failures.front()->failure);
      (first ? result.failures : rest).push_back(report->failure);
    }
  }
  result.ties = static_cast<uint32_t>(std::min(result.failures.size(), kFailuresMax));
  result.failures.insert(result.failures.end(), rest.begin(), rest.end());
  if (result.failures.size() > kFailuresMax) result.failures.resize(kFailuresMax);
  return result;
}

}  // namespace ddprun::rendezvous
