#ifndef DDPRUN_RENDEZVOUS_SERVER_JOB_SHELL_H_
#define DDPRUN_RENDEZVOUS_SERVER_JOB_SHELL_H_

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/event_log.h"
#include "base/event_loop.h"
#include "rendezvous/core/state_machine.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/server/event_ring.h"

namespace ddprun::rendezvous {

// One job's state machine with its timer and its journal: carries out its effects in their order,
// and holds back what follows a Persist until that is done (R10), but for probes. Threads: the
// loop's.
class JobShell {
 public:
  // What the server does for its jobs.
  class Host {
   public:
    virtual ~Host() = default;
    virtual void SendTo(StreamKey stream, const SharedMessage& message) = 0;
    virtual void EndStream(StreamKey stream, const absl::Status& status) = 0;
    // The job is over. It is not to be destroyed before the loop's next turn.
    virtual void OnJobEnded(JobShell* job) = 0;
  };

  // All pointers must outlive the job.
  JobShell(EventLoop* loop, EventLog* events, Journal* journal, Host* host, std::string run_id,
           Term term, const std::string& token);
  ~JobShell();
  JobShell(const JobShell&) = delete;
  JobShell& operator=(const JobShell&) = delete;

  // Takes the event and does what follows. An event that arises while effects are carried out is
  // taken in between; its effects come after those.
  void Step(const Event& event);

  JobView View() const { return machine_.View(loop_->Now()); }
  const std::deque<GenerationView>& generations() const { return machine_.generations(); }
  // Its notes, also after its end.
  const std::shared_ptr<EventRing>& ring() const { return ring_; }
  const std::string& run_id() const { return run_id_; }
  bool ended() const { return ended_; }

  // Streams whose Join went to this job and that are not done yet.
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

  EventLoop* loop_;
  EventLog* events_;
  Journal* journal_;
  Host* host_;
  const std::string run_id_;
  StateMachine machine_;
  Timer timer_;
  const std::shared_ptr<EventRing> ring_ = std::make_shared<EventRing>();
  std::deque<Effect> waiting_;
  std::set<StreamKey> streams_;
  bool carrying_out_ = false;
  bool persisting_ = false;
  bool ended_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for answers of the journal
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_JOB_SHELL_H_
