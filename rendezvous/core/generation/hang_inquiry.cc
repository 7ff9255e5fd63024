#include "rendezvous/core/generation/hang_inquiry.h"

#include <algorithm>

#include "base/check.h"
#include "rendezvous/core/failures/hang_judge.h"

namespace ddprun::rendezvous {

HangStep HangInquiry::Add(Instant now, const Round& round, uint32_t group_rank, HangReport report) {
  DDPRUN_CHECK(group_rank < round.members().size(), "a report of no member");
  HangStep step;
  const bool suspect = report.any_suspect();
  if (!suspect) step.over = ForgetNamed(round.member(group_rank));
  // A repeated suspicion means that an answer is still missing, because a question may be lost with
  // its stream.
  const bool ask = suspect && (!open_ || has(group_rank));
  open_ = open_ || suspect;
  if (!open_) return step;
  // Judging costs O(ranks), so it isn't done for each answer.
  const bool stopped = std::any_of(
      report.workers.begin(), report.workers.end(),
      [](const WorkerProgress& worker) { return worker.activity == Activity::kStopped; });
  const absl::Duration sample = report.sample;
  reports_[group_rank] = std::move(report);
  if (ask && now >= ask_again_) {
    ask_again_ = now + sample;
    step.ask = WhomToAsk(round);
  }
  const size_t awaited = round.members().size() - round.succeeded();
  if (stopped || reports_.size() >= awaited) step.verdict = Judge(round);
  return step;
}

void HangInquiry::Close() {
  EndInquiry();
  proof_.clear();
  named_.clear();
}

void HangInquiry::EndInquiry() {
  open_ = false;
  reports_.clear();
  ask_again_ = Instant();
}

// A rank that has gone on is named again when it holds up the others once more.
std::vector<uint32_t> HangInquiry::ForgetNamed(const RoundMember& member) {
  const uint32_t base = member.placement.base_rank;
  const auto theirs = std::stable_partition(named_.begin(), named_.end(), [&](uint32_t rank) {
    return rank < base || rank >= base + member.worker_count;
  });
  std::vector<uint32_t> forgotten(theirs, named_.end());
  named_.erase(theirs, named_.end());
  return forgotten;
}

// Every member that may have something to report. A silent member is lost by its lease.
std::vector<uint32_t> HangInquiry::WhomToAsk(const Round& round) const {
  std::vector<uint32_t> ask;
  for (uint32_t rank = 0; rank < round.members().size(); ++rank) {
    const RoundMember& member = round.member(rank);
    if (!has(rank) && !member.succeeded && member.node_order != 0) ask.push_back(rank);
  }
  return ask;
}

std::optional<HangVerdict> HangInquiry::Judge(const Round& round) {
  bool complete = true;
  std::vector<RankProgress> ranks;
  for (uint32_t rank = 0; rank < round.members().size(); ++rank) {
    const RoundMember& member = round.member(rank);
    if (member.succeeded) continue;
    if (!has(rank)) {
      complete = false;
      continue;
    }
    for (const WorkerProgress& worker : reports_.at(rank).workers) {
      if (worker.local_rank >= member.worker_count) continue;
      ranks.push_back({member.placement.base_rank + worker.local_rank, worker});
    }
  }
  std::optional<HangVerdict> verdict = Conclude(ranks, complete);
  // A worker that is still suspect is reported again.
  if (verdict.has_value() || complete) EndInquiry();
  return verdict;
}

std::optional<HangVerdict> HangInquiry::Conclude(const std::vector<RankProgress>& ranks,
                                                 bool complete) {
  std::optional<HangProof> proof = ProveHang(ranks, complete);
  const bool same = proof.has_value() && proof->fingerprint == proof_;
  if (complete || proof.has_value()) proof_ = proof.has_value() ? proof->fingerprint : "";
  if (same) return std::move(proof->verdict);
  std::optional<HangVerdict> verdict = JudgeHang(ranks, complete);
  if (!verdict.has_value() || verdict->end) return verdict;
  if (verdict->guilty == named_) return std::nullopt;
  named_ = verdict->guilty;
  return verdict;
}

std::string HangInquiry::BrokenInvariant(const Round* round) const {
  if (!open_ && !reports_.empty()) return "reports of an inquiry that is closed";
  if (!open_ && ask_again_ != Instant()) return "a question of an inquiry that is closed";
  if (open_ && reports_.empty()) return "an inquiry that nobody began";
  if (round == nullptr || reports_.empty()) return "";
  return reports_.rbegin()->first < round->members().size() ? "" : "a report of no member";
}

std::vector<std::pair<uint32_t, HungWorkers>> HangOrders(const HangVerdict& verdict,
                                                         const Round& round) {
  std::vector<std::pair<uint32_t, HungWorkers>> orders;
  for (uint32_t group_rank = 0; group_rank < round.members().size(); ++group_rank) {
    const RoundMember& member = round.member(group_rank);
    HungWorkers order{.generation = round.generation(),
                      .local_ranks = {},
                      .reason = verdict.evidence,
                      .end = verdict.end};
    const uint32_t base = member.placement.base_rank;
    const auto first = std::lower_bound(verdict.guilty.begin(), verdict.guilty.end(), base);
    for (auto rank = first; rank != verdict.guilty.end() && *rank < base + member.worker_count;
         ++rank) {
      order.local_ranks.push_back(*rank - base);
    }
    if (order.local_ranks.empty() || member.node_order == 0) continue;
    orders.emplace_back(group_rank, std::move(order));
  }
  return orders;
}

}  // namespace ddprun::rendezvous
