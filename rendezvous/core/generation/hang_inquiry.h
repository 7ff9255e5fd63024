#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_HANG_INQUIRY_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_HANG_INQUIRY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/instant.h"
#include "rendezvous/core/failures/hang_judge.h"
#include "rendezvous/core/generation/round.h"
#include "rendezvous/core/message.h"

namespace ddprun::rendezvous {

// What is to be done about a report, in this order.
struct HangStep {
  std::vector<uint32_t> ask;           // group ranks, ascending: what they see, with two samples
  std::optional<HangVerdict> verdict;  // who is to be ended
};

// The reports of one generation's members, by group rank, since the suspicion arose: whom to ask,
// and when to judge (R13). Who is guilty is JudgeHang's. Pure.
//
//   closed ─(a member is suspect)─► open: the others are asked ─(judged; or all answered)─► closed
class HangInquiry {
 public:
  // Takes the newest report of a member of the running generation.
  HangStep Add(Instant now, const Round& round, uint32_t group_rank, HangReport report);
  // The next suspicion asks anew.
  void Close();

  bool open() const { return open_; }
  bool has(uint32_t group_rank) const { return reports_.contains(group_rank); }
  // What is wrong with it, `round` being the live one (null: none is); "" = nothing.
  std::string BrokenInvariant(const Round* round) const;

 private:
  std::vector<uint32_t> WhomToAsk(const Round& round) const;
  std::optional<HangVerdict> Judge(const Round& round);

  bool open_ = false;
  std::map<uint32_t, HangReport> reports_;  // empty unless open; of members of the round
  Instant ask_again_;  // not before, however often a suspicion is repeated; 0 unless open
};

// What the members with guilty workers are told, by group rank, ascending.
std::vector<std::pair<uint32_t, EndHung>> EndOrders(const HangVerdict& verdict, const Round& round);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_HANG_INQUIRY_H_
