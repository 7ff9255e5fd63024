#include "rendezvous/server/refusals.h"

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace ddprun::rendezvous {

void Refusals::Count(Instant now, const std::string& kind, const std::string& peer,
                     const absl::Status& status) {
  if (++counts_[kind] > 1) return;
  Log(LogLevel::kWarning, absl::StrCat("refused input from ", peer, ": ", status.message(), " (",
                                       kind, "; more of this kind is only counted)"));
  events_->Write(now, "input_refused",
                 {{"kind", kind}, {"peer", peer}, {"why", std::string(status.message())}});
}

}  // namespace ddprun::rendezvous
