#ifndef DDPRUN_RENDEZVOUS_SERVER_JOB_SHELL_H_
#define DDPRUN_RENDEZVOUS_SERVER_JOB_SHELL_H_

#include <memory>
#include <set>
#include <string>

#include "base/event_log.h"
#include "base/event_loop.h"
#include "rendezvous/core/job/state_machine.h"
#include "rendezvous/core/job/step_effects.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/server/event_watch.h"

namespace ddprun::rendezvous {

// One job's state machine with its timer and its journal: carries out its effects in the order of
// an EffectQueue (R10). Threads: the loop's.
class JobShell {
 public:
  // What the server does for its jobs.
  class Host {
   public:
    virtual ~Host() = default;
    virtual void SendTo(StreamKey stream, const SharedMessage& message) = 0;
    virtual void EndStream(StreamKey stream, const absl::Status& status) = 0;
    // The job's record is outdated and couldn't be removed: no service may resume from it. Params:
    // why: for people.
    virtual void OnRecordStale(JobShell* job, const std::string& why) = 0;
    // The job is over. The JobShell must live until the loop's next turn.
    virtual void OnJobEnded(JobShell* job, Outcome outcome) = 0;
  };

  // All pointers must outlive the job.
  JobShell(EventLoop* loop, EventLog* events, Journal* journal, Host* host, std::string run_id,
           Term term, const std::string& token);
  // Resumes a job of another service. Requires: the journal keeps records.
  JobShell(EventLoop* loop, EventLog* events, Journal* journal, Host* host, KeptJob kept,
           const std::string& token);
  ~JobShell();
  JobShell(const JobShell&) = delete;
  JobShell& operator=(const JobShell&) = delete;

  // Handles an event and carries out its effects. An event that arises meanwhile is handled in
  // between; its effects come after those.
  void Step(const Event& event);

  JobView View() const;
  const std::deque<GenerationView>& generations() const { return machine_.generations(); }
  // The job's notes, also after its end.
  const std::shared_ptr<EventRing>& ring() const { return ring_; }
  const std::string& run_id() const { return run_id_; }
  bool ended() const { return ended_; }

  // Streams whose Join went to this job and that aren't done.
  std::set<StreamKey>& streams() { return streams_; }

 private:
  void CarryOut();
  void Do(const Send& effect);
  void Do(const CloseStream& effect);
  void Do(const Persist& effect);
  void Do(const Note& effect);
  void Do(const Ended& effect);
  void WriteLedger();
  void OnPersisted(const absl::Status& status);
  void OnRetracted(const absl::Status& status, const absl::Status& retracted);
  void EndPersist(const absl::Status& status);

  EventLoop* loop_;
  EventLog* log_;
  Journal* journal_;
  Host* host_;
  const std::string run_id_;
  StateMachine machine_;
  Timer timer_;
  const std::shared_ptr<EventRing> ring_ = std::make_shared<EventRing>();
  EffectQueue effects_;
  std::set<StreamKey> streams_;
  bool carrying_out_ = false;
  bool retracts_ = false;  // its record is being retracted; never false again
  bool ended_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for answers of the journal
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_JOB_SHELL_H_
