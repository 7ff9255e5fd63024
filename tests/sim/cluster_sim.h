#ifndef DDPRUN_TESTS_SIM_CLUSTER_SIM_H_
#define DDPRUN_TESTS_SIM_CLUSTER_SIM_H_

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "rendezvous/core/job/state_machine.h"
#include "tests/sim/checkers.h"
#include "tests/sim/decision_watch.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/fault_plan.h"
#include "tests/sim/precision.h"
#include "tests/sim/sabotage.h"
#include "tests/sim/shown_job.h"
#include "tests/sim/sim_network.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/sim_service.h"
#include "tests/sim/strangers.h"
#include "tests/sim/stream_precision.h"
#include "tests/support/trace_digest.h"

namespace ddprun::sim {

// One job on a few machines: 40 s with faults (safety), then up to 150 s without (liveness). By
// then the job must have ended everywhere. The same seed gives the same run.
class ClusterSim final : private EventQueue::Receiver {
 public:
  struct Result {
    std::string broken;      // what is wrong; "" = nothing
    std::string trace_tail;  // the last events, when they were traced
    // For the summary.
    std::string outcome;
    bool unheard = false;   // no agent heard the verdict: the last ones had left, or were lost
    std::string rule;       // the verdict's rule
    uint64_t restarts = 0;  // the verdict's count
    uint64_t generations = 0;
    uint64_t messages = 0;
    uint64_t hangs = 0;  // workers that were ended because they hung
    uint64_t stops = 0;  // workers that stopped at an agreed step
    uint64_t drains = 0;
    uint64_t deaths = 0;      // deaths of the service
    uint64_t takeovers = 0;   // takeovers by another service
    uint64_t unread = 0;      // starts of a service with a record that could not be read
    uint64_t repeats = 0;     // events that arrived twice
    uint64_t intrusions = 0;  // messages of unauthenticated peers
    bool large = false;       // more than sixteen nodes
  };

  ClusterSim(uint64_t seed, Sabotage sabotage, bool trace, Program program = Program::kTrains);
  // Takes every step of the service into `digest`, which must outlive Run().
  void DigestInto(testing::TraceDigest* digest) { digest_ = digest; }
  // The job that is simulated.
  const rendezvous::JobSpec& job() const { return job_; }
  size_t nodes() const { return nodes_.size(); }
  // The faults of the run. Follow(), before Run(), replaces those that were drawn from the seed.
  const FaultPlan& plan() const { return plan_; }
  void Follow(FaultPlan plan) { plan_ = std::move(plan); }
  Result Run();

 private:
  void MakeJob();
  void MakeRestartRules();
  void MakeLargeJob();
  void MakeNetwork(uint64_t nodes);
  void MakeNodes();
  launcher::SupervisorConfig ConfigOf(uint64_t node);
  SimNode::Callbacks CallbacksOfNodes();
  void MakePlan();
  void ScheduleFaults();
  void OnDue(uint64_t fault) override { Fault(plan_.faults[fault]); }
  void Fault(const PlannedFault& fault);
  void Cut(SimNode* node, const PlannedFault& fault);
  void Heal();
  void ResumeService();
  void StepStalled();
  void KeepAgentsUp();
  bool Over() const;
  // The service.
  Storage MakeStorage();
  void MakeService();
  SimService::Hooks HooksOfService();

  // Two services at once: cluster_takeover.cc.
  struct Former {
    std::unique_ptr<SimService> service;
    std::unique_ptr<EventQueue::Timer> timer;
    bool frozen = false;
    std::deque<rendezvous::Event> events;  // while it is
  };
  void TakeOver(const PlannedFault& fault);
  std::unique_ptr<SimService> Successor(const SimService& former);
  SimService::Hooks HooksOfFormer(size_t number);
  void HearOfLeader(SimNode* node, size_t service);
  void OnFormerEvent(size_t number, const rendezvous::Event& event);
  void StepFormer(Former& former, const rendezvous::Event& event);
  void ThawFormer(size_t number);
  void EndFormer(size_t number);
  void TakeFormerEffect(const rendezvous::Effect& effect);
  void CheckLeader(int node, uint64_t stream, const rendezvous::ServiceMessage& message);
  uint64_t LiveStream(const SimNode& node) const;

  void OnServiceEvent(const rendezvous::Event& event);
  void StepService(const rendezvous::Event& event);
  void OnServiceStepped(const rendezvous::Event& event,
                        const std::vector<rendezvous::Effect>& effects);
  void KillService(uint64_t after);
  void OnServiceDied();
  void ForgetLife();
  void StartService(absl::Duration pause);
  void DamageRecord(const PlannedFault& fault);
  void DisturbLooks();
  void TakeServiceEffect(const rendezvous::Effect& effect, Instant decided);
  void SendToAgent(rendezvous::StreamKey stream, rendezvous::SharedMessage shared);
  void Deliver(rendezvous::StreamKey stream, rendezvous::SharedMessage message);
  void OnVerdictTold(const rendezvous::Verdict& verdict);
  void Hear(const rendezvous::AgentMessage& message, rendezvous::StreamKey stream);
  void AnswerStranger(const rendezvous::Effect& effect);
  std::string CheckIntrusion(const rendezvous::Event& event,
                             const std::vector<rendezvous::Effect>& effects) const;
  void ObserveNodes();
  void Observe(const SimNode& node, bool touched);
  void SetCut(SimNode* node, bool to_service, bool to_agent);
  void CheckPrecision(const rendezvous::Event& event,
                      const std::vector<rendezvous::Effect>& effects);
  void NoteWhoIsOwedTheVerdict();
  std::string CheckHeard() const;
  std::string CheckLiveness(const ShownJob::Shown& shown);
  std::string CheckLost(const rendezvous::Note& note) const;
  std::string CheckClosed(const ShownJob::Shown& shown) const;
  Instant BackSince(const SimNode& node) const;
  rendezvous::ProbePace Pace() const;
  bool Mute(const SimNode& node) const;
  const SimNode* NodeOf(rendezvous::StreamKey stream);
  const SimNode* NodeCalled(const rendezvous::NodeId& id) const;
  void ForgeStopped(rendezvous::StreamKey stream, rendezvous::Generation generation);
  void OnNote(const rendezvous::Note& note, Instant decided);
  void ArmServiceTimer();
  void OnServiceTimer();
  void CheckFormed(const std::vector<rendezvous::Effect>& effects);

  // The nodes.
  void OnWorkerEnded(int node, rendezvous::Generation generation, bool ok, bool at_stop);
  void FailOne(SimNode* node, uint64_t how);
  void CutServiceOff(absl::Duration lasts);
  void HangWorker(SimNode* node);
  void FaultOfMachine(SimNode* node, const PlannedFault& fault);
  void Crash(SimNode* node);
  void Flap(SimNode* node, const PlannedFault& fault, Instant until);
  void LetIn(SimNode* node, Stranger kind);
  void Drain(SimNode* node, absl::Duration lasts);
  bool JobHangs(rendezvous::Generation generation) const;
  void FailPeers(int node, rendezvous::Generation generation);
  void OnSpawned(int node, const rendezvous::Assignment& assignment);
  void OnExited(int node, const launcher::Exit& exit);
  std::string CheckPatience(const SimNode& node, const launcher::Exit& exit) const;
  void Break(const std::string& what);
  template <typename... Pieces>
  void Trace(const Pieces&... pieces) {
    if (trace_) KeepLine(absl::StrCat(pieces...));
  }
  void KeepLine(const std::string& line);

  const uint64_t seed_;
  const Sabotage sabotage_;
  const Program program_;
  const bool trace_;
  Rng rng_;
  EventQueue queue_;
  std::unique_ptr<SimNetwork> network_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  rendezvous::JobSpec job_;
  WorkerHabits habits_;
  bool faults_on_ = true;
  uint64_t pause_ms_ = 0;  // most between two faults
  FaultPlan plan_;
  std::optional<uint64_t> dies_at_verdict_;  // effects until the service dies
  absl::Duration preempt_deadline_;

  Storage storage_;
  std::unique_ptr<SimStore> store_;
  std::unique_ptr<SimService> service_;
  size_t leader_ = 0;                                  // the number of service_
  std::map<size_t, std::unique_ptr<Former>> formers_;  // by number
  std::map<rendezvous::Incarnation, size_t> welcomed_by_;
  DecisionWatch decisions_;
  EventQueue::Timer service_timer_{[this] { OnServiceTimer(); }};
  // By stream: the first message without its body, and the last sequence.
  std::map<rendezvous::StreamKey, rendezvous::AgentMessage> headers_;
  std::map<rendezvous::StreamKey, absl::StatusCode> strangers_;  // the status that must end each
  std::set<rendezvous::StreamKey> refused_;  // ended by a service; the agent may not know
  Instant stalled_until_;
  std::deque<rendezvous::Event> stalled_events_;
  bool resuming_ = false;  // StepStalled() goes on
  bool was_due_ = false;   // before the last step the service's timer was due
  Instant due_;            // the service's next deadline, unless stepped_since_
  bool stepped_since_ = true;
  ShownJob shown_{[this](const rendezvous::NodeId& id) { return NodeCalled(id); }};
  absl::Duration safety_;    // how long there are faults
  absl::Duration slowest_;   // the slowest message
  bool beside_ = false;      // heartbeats have connections of their own
  uint64_t between_us_ = 0;  // most between two steps of a service that was held up
  bool ended_ = false;
  std::set<int> owed_verdict_;
  std::optional<rendezvous::Verdict> verdict_;
  Instant verdict_decided_;
  uint32_t world_size_ = 0;
  std::map<rendezvous::Generation, rendezvous::JobView> formed_;  // as each was formed
  GenerationOrder order_;
  std::unique_ptr<BlameWatch> blame_;
  std::unique_ptr<PolicyWatch> policy_;
  std::unique_ptr<QuarantineWatch> quarantine_;
  DrainWatch drains_;
  bool forgets_drains_ = false;  // drains_ gets no notes
  SuccessTruth truth_;
  StopSteps stop_steps_;
  VerdictWatch verdicts_;
  bool recorded_ = false;  // the job has, or has had, a record
  uint64_t observed_ = 0;  // calls of ObserveNodes()
  LeasePrecision leases_;
  IsolationWatch isolation_;
  DoneWatch done_;
  GrowthWatch growth_;
  SlotWatch slots_;
  PortWatch ports_;
  OutsideKills outside_kills_;
  LossBound losses_;
  SilenceWatch silences_;
  SuccessBound successes_;
  RepeatWatch repeats_;
  ProbeRate probe_rate_;
  ExcuseWatch excuses_;
  bool claims_ = false;                   // nodes claim node ranks
  std::map<std::string, uint32_t> pids_;  // of the agent that joined last, by node id
  std::set<std::string> lost_;            // node ids that were lost since they joined

  Result result_;
  std::deque<std::string> lines_;
  testing::TraceDigest* digest_ = nullptr;  // null = none is wanted
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_CLUSTER_SIM_H_
