#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_HANG_INQUIRY_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_HANG_INQUIRY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/instant.h"
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/failures/hang_judge.h"
#include "rendezvous/core/generation/round.h"
#include "rendezvous/core/service_message.h"

namespace ddprun::rendezvous {

// What to do about a report, in this order.
struct HangStep {
  std::vector<uint32_t> ask;           // group ranks, ascending, to get a ReportProgress
  std::optional<HangVerdict> verdict;  // ranks to be ended, or to be named
  std::vector<uint32_t> over;          // ranks that were named and no longer hang
};

// The reports of one generation's members, by group rank, since the suspicion arose. Decides which
// members to ask, and when to judge (R13); JudgeHang and ProveHang decide which ranks are guilty. A
// proof counts if two inquiries in a row give the same one. An unchanged suspicion is passed on
// once. Pure.
//
//   closed ─(a member is suspect)─► open: the others are asked ─(judged; or all answered)─► closed
class HangInquiry {
 public:
  // Takes the newest report of a member of the running generation.
  HangStep Add(Instant now, const Round& round, uint32_t group_rank, HangReport report);
  // Forgets everything: the generation is over.
  void Close();

  bool open() const { return open_; }
  bool has(uint32_t group_rank) const { return reports_.contains(group_rank); }
  // The first broken invariant; "" = all hold. Params: round: the live one; null = none is.
  std::string BrokenInvariant(const Round* round) const;

 private:
  std::vector<uint32_t> WhomToAsk(const Round& round) const;
  std::optional<HangVerdict> Judge(const Round& round);
  std::optional<HangVerdict> Conclude(const std::vector<RankProgress>& ranks, bool complete);
  void EndInquiry();
  std::vector<uint32_t> ForgetNamed(const RoundMember& member);

  bool open_ = false;
  std::map<uint32_t, HangReport> reports_;  // empty unless open; of members of the round
  Instant
      ask_again_;  // no question before this, however often a suspicion is repeated; 0 unless open
  std::string proof_;            // fingerprint of the former inquiry's proof; "" = none
  std::vector<uint32_t> named_;  // ranks of the suspicion that was passed on last
};

// The orders for the members with guilty workers, by group rank, ascending.
std::vector<std::pair<uint32_t, HungWorkers>> HangOrders(const HangVerdict& verdict,
                                                         const Round& round);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_HANG_INQUIRY_H_
