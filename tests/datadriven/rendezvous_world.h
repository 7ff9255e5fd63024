#ifndef DDPRUN_TESTS_DATADRIVEN_RENDEZVOUS_WORLD_H_
#define DDPRUN_TESTS_DATADRIVEN_RENDEZVOUS_WORLD_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/job/state_machine.h"
#include "tests/datadriven/script.h"

namespace ddprun::testing {

// A state machine under a script, with puppets for agents: each keeps its stream, sequence and
// generation, and answers probes at once unless it is cut. Commands (times as Go writes them):
//
//   job nodes=2 | min=1 max=2 [max_restarts= lease= grace= stop_grace= last_call= join_timeout=
//       changes= window= backoff= crash_loop= give_up= quarantine= quarantine_time=
//       token= term= journal=auto|manual]  a new service; time is 0. journal: it keeps a record,
//                                           at once, or (manual) when "persisted" says so
//   restart [after=3s vanished=a by=b]      the service has died, and another one goes on from the
//                                           record; agents lose their streams. vanished=a: the
//                                           node whose service it was, silent for a lease. by=b:
//                                           the agent whose child the new one is
//   join a [as=nodeid] [host= workers= role= rank= endpoint service port= store= pid= state= gen=
//       token= fingerprint= max_restarts= nodes= description= major= release= term= stream=
//       new]
//                                           opens a stream; "new" = another agent process
//   started|succeeded a                     of the generation that a knows; gen= and seq= override
//   failed a [local=0 signal= code=1 message= stderr= after= start_error=]
//   stopped a [unclean port= local= trained=10s last=2s …]
//                                           trained: until the last mark, last: since then; options
//                                           of "failed" add a failure
//   leave a [end] [preempted] [reason=]
//   unknown a                               an event of a kind that a later release added
//   preempt a [host drained deadline=30s reason=]  a is about to be taken away; host: it has the
//                                           service; drained: it was asked to leave
//   drain a [reason=], undrain a            a control call asks a to leave, lets its machine join
//   prepared a [step=7 past deaf takes= round=]   answers the last question for a stop step
//   close a                                 it closes its stream; reset a: the network does
//   cut a in|out|both, heal a               in: nothing of a's answers arrives; out: no probes
//   renew a nonce=                          by hand
//   gpus a [count=1] [lost=2]               its renewals report its GPUs from now on; one is lost
//   train a [rejoins=1]                     they report step 1, and workers that can rejoin
//   advance 5s                              on time, deadline by deadline
//   stall 3s                                time passes without a step, then the timer
//   busy 3s                                 time passes without a step, and without the timer
//   hang a [suspect overdue local=0 workers=1 phase=train step=7 activity=still where= sample=]
//   stop "reason", persisted ok|error, view, ledger, deadline, probes on|off
class RendezvousWorld {
 public:
  // Runs one command line and returns its output lines.
  std::vector<std::string> Run(const std::string& line);

 private:
  struct Puppet {
    rendezvous::NodeId id;
    rendezvous::Incarnation incarnation;
    rendezvous::StreamNumber stream_number;
    std::optional<rendezvous::StreamKey> stream;
    rendezvous::Term term;
    uint64_t sequence = 0;
    uint32_t stop_round = 0;  // that was asked for last
    rendezvous::Generation generation;
    rendezvous::Join join;
    std::vector<rendezvous::GpuUse> gpus;  // reported in its renewals
    std::vector<uint64_t> progress;        // the same
    bool can_rejoin = false;               // the same
    bool cut_in = false;
    bool cut_out = false;
  };

  void ShowLedger();
  void StartJob(const Command& command);
  void RestartService(const Command& command);
  void TakeRecord();
  void OpenStream(const Command& command);
  void FillJoin(const Command& command, Puppet& puppet);
  void Report(const Command& command);
  void Cut(const Command& command);
  void Advance(absl::Duration duration);
  void Step(const rendezvous::Event& event);
  void Take(const rendezvous::Effect& effect);
  void TakeMessage(Puppet& puppet, const rendezvous::ServiceMessage& message);
  rendezvous::AgentMessage Header(const Puppet& puppet) const;
  rendezvous::WorkerFailure Failure(const Command& command) const;
  std::optional<rendezvous::NodeTime> Time(const Command& command) const;
  rendezvous::HangReport Hangs(const Command& command) const;
  Puppet& Get(const std::string& name);
  std::string StreamName(rendezvous::StreamKey stream) const;

  std::unique_ptr<rendezvous::StateMachine> machine_;
  std::optional<rendezvous::JobRecord> record_;  // the last that was kept
  Instant recorded_;
  bool keeps_at_once_ = false;
  rendezvous::JobSpec spec_;
  std::string token_;
  Instant now_;
  std::map<std::string, Puppet> puppets_;
  std::map<rendezvous::StreamKey, std::string> streams_;  // to the puppet's name
  uint64_t next_stream_ = 1;
  uint64_t next_incarnation_ = 1;
  bool show_probes_ = false;
  std::vector<rendezvous::Event> answers_;  // of puppets, for the next step
  std::vector<std::string> output_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_DATADRIVEN_RENDEZVOUS_WORLD_H_
