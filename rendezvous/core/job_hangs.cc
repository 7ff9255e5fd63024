#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/job.h"

// Who holds up a generation in which workers hang (R13).
namespace ddprun::rendezvous {

void Job::OnReport(Node& node, const HangReport& report) {
  if (phase_ != Phase::kRunning) return;
  const uint32_t sender = *node.group_rank;
  const bool ask = inquiry_.Add(sender, report);
  if (!inquiry_.open()) return;
  if (ask && now_ >= ask_again_) AskForProgress(report.sample);
  // Judging costs as much as the job has ranks, so not for each of the answers.
  const bool stopped = std::any_of(
      report.workers.begin(), report.workers.end(),
      [](const WorkerProgress& worker) { return worker.activity == Activity::kStopped; });
  const size_t awaited = round_->members().size() - round_->succeeded();
  if (stopped || inquiry_.reports().size() >= awaited) JudgeInquiry();
}

// Of every member that may have something to say. Who is silent is lost by its lease.
void Job::AskForProgress(absl::Duration sample) {
  ask_again_ = now_ + sample;
  for (uint32_t rank = 0; rank < round_->members().size(); ++rank) {
    const RoundMember& member = round_->member(rank);
    if (inquiry_.has(rank) || member.succeeded || member.node_order == 0) continue;
    SendTo(*nodes_.FindByOrder(member.node_order),
           ReportProgress{.generation = generation_, .sample = sample});
  }
}

void Job::JudgeInquiry() {
  bool complete = true;
  std::vector<RankProgress> ranks;
  for (uint32_t rank = 0; rank < round_->members().size(); ++rank) {
    const RoundMember& member = round_->member(rank);
    if (member.succeeded) continue;
    if (!inquiry_.has(rank)) {
      complete = false;
      continue;
    }
    for (const WorkerProgress& worker : inquiry_.reports().at(rank).workers) {
      if (worker.local_rank >= member.worker_count) continue;
      ranks.push_back({member.placement.base_rank + worker.local_rank, worker});
    }
  }
  const std::optional<HangVerdict> verdict = JudgeHang(ranks, complete);
  if (verdict.has_value()) EndHungWorkers(*verdict);
  // Whoever is still suspect says so again.
  if (!verdict.has_value() && !complete) return;
  inquiry_.Close();
  ask_again_ = Instant();
}

void Job::EndHungWorkers(const HangVerdict& verdict) {
  AddNote("hang", {{"generation", absl::StrCat(generation_.value())},
                   {"ranks", Bounded(absl::StrJoin(verdict.guilty, ","), kTextBytesMax)},
                   {"evidence", verdict.evidence}});
  for (const RoundMember& member : round_->members()) {
    EndHung order{.generation = generation_, .local_ranks = {}, .reason = verdict.evidence};
    const uint32_t base = member.placement.base_rank;
    const auto first = std::lower_bound(verdict.guilty.begin(), verdict.guilty.end(), base);
    for (auto rank = first; rank != verdict.guilty.end() && *rank < base + member.worker_count;
         ++rank) {
      order.local_ranks.push_back(*rank - base);
    }
    if (order.local_ranks.empty() || member.node_order == 0) continue;
    SendTo(*nodes_.FindByOrder(member.node_order), std::move(order));
  }
}

}  // namespace ddprun::rendezvous
