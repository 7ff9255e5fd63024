#include "rendezvous/core/failures/node_blame.h"

#include <algorithm>

#include "base/check.h"
#include "rendezvous/core/failures/restart_policy.h"

namespace ddprun::rendezvous {

std::optional<NodeId> BlamedNode(const FirstCause& cause) {
  if (cause.ties == 0) return std::nullopt;
  const NodeId& node = cause.failures.front().node_id;
  for (size_t i = 0; i < cause.ties; ++i) {
    const WorkerFailure& failure = cause.failures[i];
    if (failure.node_id != node || failure.preflight || KilledFromOutside(failure) ||
        Weigh(failure) == Evidence::kPeerError) {
      return std::nullopt;
    }
  }
  return node;
}

void NodeBlame::SetRules(const RestartRules& rules) {
  DDPRUN_CHECK(records_.empty(), "rules that change in the midst of a job");
  rules_ = rules;
}

void NodeBlame::Add(const NodeId& node, const std::string& hostname, Instant now) {
  if (rules_.quarantine_after == 0) return;
  std::erase_if(records_, [&](const auto& entry) { return CountOf(entry.second, now) == 0; });
  Record& record = records_[node];
  record.hostname = hostname;
  record.failures.push_back(now);
  if (record.failures.size() > rules_.quarantine_after) record.failures.pop_front();
  NoteFull();
}

void NodeBlame::NoteFull() {
  any_full_ = std::any_of(records_.begin(), records_.end(), [&](const auto& entry) {
    return entry.second.failures.size() >= rules_.quarantine_after;
  });
}

void NodeBlame::Inherit(const NodeId& node, const std::string& hostname,
                        const std::function<bool(const NodeId&)>& is_present) {
  const auto former = std::find_if(records_.begin(), records_.end(), [&](const auto& entry) {
    return entry.second.hostname == hostname && !is_present(entry.first);
  });
  if (former == records_.end() || former->first == node) return;
  Record record = std::move(former->second);
  records_.erase(former);
  records_.insert_or_assign(node, std::move(record));
  NoteFull();  // the record may have replaced another one
}

uint32_t NodeBlame::CountOf(const Record& record, Instant now) const {
  return static_cast<uint32_t>(
      std::count_if(record.failures.begin(), record.failures.end(),
                    [&](Instant failed) { return now < failed + rules_.quarantine_time; }));
}

uint32_t NodeBlame::Count(const NodeId& node, Instant now) const {
  const auto found = records_.find(node);
  return found == records_.end() ? 0 : CountOf(found->second, now);
}

bool NodeBlame::Quarantined(const NodeId& node, Instant now) const {
  return rules_.quarantine_after > 0 && Count(node, now) >= rules_.quarantine_after;
}

std::vector<NodeId> NodeBlame::QuarantinedNodes(Instant now) const {
  std::vector<NodeId> nodes;
  if (!any_full_) return nodes;
  for (const auto& [node, record] : records_) {
    if (record.failures.size() < rules_.quarantine_after) continue;
    if (Quarantined(node, now)) nodes.push_back(node);
  }
  return nodes;
}

Instant NodeBlame::NextRelease(Instant now) const {
  Instant next = Instant::Infinite();
  for (const NodeId& node : QuarantinedNodes(now)) {
    // The node has exactly quarantine_after failures, so the oldest decides.
    next = std::min(next, records_.at(node).failures.front() + rules_.quarantine_time);
  }
  return next;
}

std::vector<BlameRecord> NodeBlame::ToRecord(Instant now) const {
  std::vector<BlameRecord> records;
  for (const auto& [node, record] : records_) {
    records.push_back({.node = node, .hostname = record.hostname, .ages = {}});
    for (const Instant failed : record.failures) records.back().ages.push_back(now - failed);
  }
  return records;
}

void NodeBlame::Recover(Instant now, const std::vector<BlameRecord>& records) {
  DDPRUN_CHECK(records_.empty(), "failures were forgotten");
  for (const BlameRecord& each : records) {
    Record& record = records_[each.node];
    record.hostname = each.hostname;
    for (const absl::Duration age : each.ages) record.failures.push_back(now - age);
  }
  NoteFull();
}

std::string NodeBlame::BrokenInvariant() const {
  bool any_full = false;
  for (const auto& [node, record] : records_) {
    any_full = any_full || record.failures.size() >= rules_.quarantine_after;
    if (record.failures.empty()) return "a record of no failure";
    if (record.failures.size() > rules_.quarantine_after) return "more failures than count";
    if (!std::is_sorted(record.failures.begin(), record.failures.end())) return "failures go back";
  }
  return any_full == any_full_ ? "" : "a node that nobody would look at";
}

std::vector<size_t> LeaveOut(const std::vector<std::optional<uint32_t>>& counts,
                             uint32_t nodes_min) {
  std::vector<size_t> in;
  std::vector<size_t> out;
  for (size_t i = 0; i < counts.size(); ++i) (counts[i] ? out : in).push_back(i);
  std::stable_sort(out.begin(), out.end(),
                   [&](size_t a, size_t b) { return *counts[a] < *counts[b]; });
  for (size_t i = 0; i < out.size() && in.size() < nodes_min; ++i) in.push_back(out[i]);
  std::sort(in.begin(), in.end());
  return in;
}

}  // namespace ddprun::rendezvous
