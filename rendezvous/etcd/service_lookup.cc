#include "rendezvous/etcd/service_lookup.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/instant.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ddprun::rendezvous {
namespace {

namespace pb = etcdserverpb;

// How long a leader that didn't answer is left alone; a change of the key ends it.
constexpr absl::Duration kLeftAlone = absl::Milliseconds(500);
// How many keys are read to list the jobs; a job has three.
constexpr int64_t kKeysMax = 4096;

}  // namespace

absl::StatusOr<std::unique_ptr<ServiceLookup>> ServiceLookup::Create(const EtcdSettings& settings,
                                                                     std::string run_id) {
  DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> loop, EventLoop::Create());
  DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<EtcdClient> client,
                          EtcdClient::Create(loop.get(), settings));
  JobKeys keys = KeysOf(settings, run_id);
  return std::unique_ptr<ServiceLookup>(
      new ServiceLookup(std::move(loop), std::move(client), std::move(keys), std::move(run_id)));
}

ServiceLookup::ServiceLookup(std::unique_ptr<EventLoop> loop, std::unique_ptr<EtcdClient> client,
                             JobKeys keys, std::string run_id)
    : loop_(std::move(loop)),
      client_(std::move(client)),
      keys_(std::move(keys)),
      run_id_(std::move(run_id)) {}

void ServiceLookup::RunUntilDone() {
  while (!std::exchange(done_, false)) loop_->Run();
}

template <typename Request>
absl::StatusOr<pb::RangeResponse> ServiceLookup::Read(Request request, absl::Duration patience) {
  absl::StatusOr<pb::RangeResponse> answer;
  client_->Range(std::move(request), patience, [&](absl::StatusOr<pb::RangeResponse> reply) {
    answer = std::move(reply);
    done_ = true;
    loop_->Stop();
  });
  RunUntilDone();
  return answer;
}

absl::StatusOr<std::vector<std::string>> ServiceLookup::Jobs(const EtcdSettings& settings,
                                                             absl::Duration patience) {
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<ServiceLookup> lookup, Create(settings, ""));
  DDPRUN_ASSIGN_OR_RETURN(const pb::RangeResponse keys,
                          lookup->Read(AllKeys(settings, kKeysMax), patience));
  const std::string where =
      absl::StrCat("under ", Quoted(settings.prefix + "/"), " in ", lookup->client_->Name());
  if (keys.more()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kKeysMax, " keys are ", where, ": name the job with --rdzv_id"));
  }
  std::vector<std::string> jobs = JobsOf(settings, keys);
  if (!jobs.empty()) return jobs;
  return absl::NotFoundError(
      absl::StrCat("no job is ", where, "; another prefix is named with --rdzv_conf etcd_prefix"));
}

void ServiceLookup::AwaitChange(int64_t revision, absl::Duration patience) {
  client_->AwaitChange(keys_.leader, revision, patience, [this](const absl::Status& /*status*/) {
    done_ = true;
    loop_->Stop();
  });
  RunUntilDone();
}

// Between two leaders the key is missing, but the record exists. An elected leader has no address
// until it serves; a lost one keeps its key until its lease is over.
absl::StatusOr<Leader> ServiceLookup::Find(int64_t former, absl::Duration patience) {
  const Instant began = loop_->Now();
  const Instant until = began + patience;
  while (true) {
    const absl::Duration left = std::max(until - loop_->Now(), EtcdClient::kTryTimeout);
    DDPRUN_ASSIGN_OR_RETURN(const pb::RangeResponse reply, Read(keys_.leader, left));
    DDPRUN_ASSIGN_OR_RETURN(const std::optional<Leader> leader, ReadLeader(reply));
    if (leader.has_value() && !leader->address.empty() &&
        (leader->revision != former || loop_->Now() - began >= kLeftAlone)) {
      return *leader;
    }
    if (!leader.has_value()) {
      DDPRUN_ASSIGN_OR_RETURN(const pb::RangeResponse record, Read(keys_.record, left));
      if (record.kvs().empty()) {
        DDPRUN_ASSIGN_OR_RETURN(const pb::RangeResponse ended, Read(keys_.ended, left));
        if (!ended.kvs().empty()) return absl::NotFoundError(ended.kvs(0).value());
        return absl::NotFoundError(absl::StrCat("no job ", Quoted(run_id_), " in ", client_->Name(),
                                                ": it is over, has not begun, or has another "
                                                "name or --rdzv_conf etcd_prefix"));
      }
    }
    if (loop_->Now() >= until) {
      return absl::UnavailableError(
          absl::StrCat("no node serves the job ", Quoted(run_id_), " now, says ", client_->Name()));
    }
    AwaitChange(leader.has_value() ? leader->mod_revision : reply.header().revision(),
                std::min(kLeftAlone, until - loop_->Now()));
  }
}

}  // namespace ddprun::rendezvous
