#ifndef DDPRUN_RENDEZVOUS_WIRE_CONVERT_PARTS_H_
#define DDPRUN_RENDEZVOUS_WIRE_CONVERT_PARTS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "ddprun/rendezvous/v1/rendezvous.pb.h"
#include "rendezvous/core/message.h"
#include "rendezvous/core/time_spent.h"
#include "rendezvous/core/types.h"
#include "rendezvous/wire/field_checker.h"

// Parts of messages that the journal keeps, too. `field`: the part's path, for errors.
namespace ddprun::rendezvous {

JobSpec ReadJobSpec(FieldChecker* checker, absl::string_view field, const std::string& run_id,
                    const v1::JobSpec& proto);
// All but the run id, which isn't in it.
void WriteJobSpec(const JobSpec& job, v1::JobSpec* proto);

// Params: nodes_max: of the job, above all claims.
NodeInfo ReadNodeInfo(FieldChecker* checker, absl::string_view field, const v1::NodeInfo& proto,
                      uint32_t nodes_max);
void WriteNodeInfo(const NodeInfo& node, v1::NodeInfo* proto);

Verdict ReadVerdict(FieldChecker* checker, absl::string_view field, const v1::Verdict& proto);
void WriteVerdict(const Verdict& verdict, v1::Verdict* proto);

// One that isn't known counts as kOther.
TimeCause ReadTimeCause(int cause);
v1::TimeCause WriteTimeCause(TimeCause cause);

// In milliseconds, rounded up. 0 means "the default" on the wire, so the shortest time is 1.
uint32_t ToMilliseconds(absl::Duration time);
// The same where 0 says something of its own, or is the default.
uint32_t ToMillisecondsOrZero(absl::Duration time);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_CONVERT_PARTS_H_
