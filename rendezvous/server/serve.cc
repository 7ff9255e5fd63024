#include "rendezvous/server/serve.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/address.h"
#include "base/event_log.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "rendezvous/journal/sqlite_journal.h"
#include "rendezvous/server/front_door.h"
#include "rendezvous/server/rendezvous_server.h"
#include "rendezvous/web/web_server.h"

namespace ddprun::rendezvous {
namespace {

// How long to wait for a journal that a machine holds which may be gone. An NFS server notices that
// after its lease, 90 s by default (nfsd(7)).
constexpr absl::Duration kTakeoverWait = absl::Seconds(120);
constexpr absl::Duration kTakeoverPause = absl::Milliseconds(200);
// The same for a process on this machine: a service ends at once with its agent, but on a busy
// machine the next agent may be faster.
constexpr absl::Duration kHolderEnds = absl::Seconds(5);
constexpr absl::Duration kHolderPause = absl::Milliseconds(20);

// Writes a line to ServeConfig.ready_fd.
void NotifyAgent(const ServeConfig& config, absl::string_view word, absl::string_view text) {
  const std::string line = absl::StrCat(word, " ", absl::StrReplaceAll(text, {{"\n", " "}}), "\n");
  WriteAll(config.ready_fd, line).IgnoreError();  // an agent that is gone is seen by life_fd
}

void NotifyReady(const ServeConfig& config, const absl::StatusOr<int>& port, int page_port = 0) {
  if (config.ready_fd >= 0) {
    if (port.ok()) return NotifyAgent(config, "ok", absl::StrCat(*port, " ", page_port));
    const bool taken = absl::IsUnavailable(port.status());
    return NotifyAgent(config, taken ? "taken" : "error", port.status().message());
  }
  if (port.ok()) {
    // With port 0 the user has to learn the port.
    const bool any = *port != 0 && absl::EndsWith(config.listen, ":0");
    Notify(absl::StrCat("rendezvous service on ", config.listen,
                        any ? absl::StrCat(", port ", *port) : "", "; Ctrl-C ends it"));
  } else {
    Notify(absl::StrCat("error: --listen: ", port.status().message()));
  }
}

// Ends the loop when the agent's end of the pipe closes. Data in the pipe is ignored.
std::unique_ptr<FdWatch> WatchLife(EventLoop* loop, int life_fd, bool* agent_gone) {
  return std::make_unique<FdWatch>(loop, life_fd, [loop, life_fd, agent_gone] {
    char bytes[64];
    const ssize_t n = read(life_fd, bytes, sizeof(bytes));
    if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN))) return;
    *agent_gone = true;
    loop->Stop();
  });
}

absl::StatusOr<EventLog> OpenEvents(const ServeConfig& config) {
  if (config.event_log.empty()) return EventLog();
  return EventLog::Open(config.event_log, "service");
}

// Only for `ddprun rendezvous`: an agent's own service has only the job of the user that started
// it.
void WarnIfOpen(const ServeConfig& config) {
  const std::string host = config.listen.substr(0, config.listen.rfind(':'));
  if (!config.token.empty() || config.tls.used() || IsLoopback(host)) return;
  Notify(
      absl::StrCat("warning: anybody who can reach ", config.listen,
                   " can join jobs there and read their status: give --token_file or --tls_dir"));
}

// A job doesn't fail because its status page can't be shown.
std::unique_ptr<WebServer> ShowStatusPage(const ServeConfig& config, EventLog& events, Instant now,
                                          RendezvousServer& server) {
  if (config.status_page.empty()) return nullptr;
  const WebServer::Options options = {
      .listen = config.status_page, .token = config.token, .password = config.status_page_token};
  absl::StatusOr<std::unique_ptr<WebServer>> page =
      WebServer::Start(options, server.InProcessChannel());
  if (!page.ok()) {
    Notify(absl::StrCat("warning: ", page.status().message()));
    return nullptr;
  }
  events.Write(now, "status_page", {{"url", AnnouncePage(options, (*page)->port())}});
  return *std::move(page);
}

// Waits for `time`. Returns false if the agent goes meanwhile.
bool Wait(EventLoop* loop, const ServeConfig& config, absl::Duration time) {
  bool agent_gone = false;
  std::unique_ptr<FdWatch> life;
  if (config.life_fd >= 0) life = WatchLife(loop, config.life_fd, &agent_gone);
  Timer timer(loop, [loop] { loop->Stop(); });
  timer.Arm(loop->Now() + time);
  loop->Run();
  return !agent_gone;
}

// Opens the journal. Waits for it if its holder may be about to go: a process on this machine, or
// one on a machine that is gone, which its file system hasn't noticed. Errors: those of
// SqliteJournal::Open.
absl::StatusOr<std::unique_ptr<SqliteJournal>> OpenFolder(const ServeConfig& config,
                                                          EventLoop* loop,
                                                          const SqliteJournal::Options& options) {
  const Instant began = loop->Now();
  bool told = false;
  while (true) {
    absl::StatusOr<std::unique_ptr<SqliteJournal>> journal =
        SqliteJournal::Open(loop, config.state_dir, options);
    if (!absl::IsUnavailable(journal.status())) return journal;
    const bool elsewhere = JournalFile::IsHeldElsewhere(config.state_dir);
    if (elsewhere && !options.outlives_machine) return journal;
    if (loop->Now() >= began + (elsewhere ? kTakeoverWait : kHolderEnds)) return journal;
    if (elsewhere && !std::exchange(told, true)) {
      Notify(absl::StrCat(journal.status().message(), "; waiting for it, ",
                          absl::FormatDuration(kTakeoverWait),
                          " at most: that machine may be gone, and its lock go later"));
    }
    if (!Wait(loop, config, elsewhere ? kTakeoverPause : kHolderPause)) return journal;
  }
}

// Sets damaged records aside, so that they cost only their own jobs; an agent's service has only
// one job, and fails.
absl::Status SetDamagedAside(const ServeConfig& config, const std::vector<DamagedRecord>& damaged,
                             SqliteJournal& journal) {
  for (const DamagedRecord& each : damaged) {
    if (!config.only_run_id.empty()) return each.why;
    DDPRUN_RETURN_IF_ERROR(journal.SetAside(each));
    Notify(absl::StrCat("warning: ", each.what,
                        ": this job is to be started anew, other jobs go on. ",
                        "Its bytes are kept in the table 'damaged' of ", Quoted(journal.where())));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<KeptJob>> LoadJobs(const ServeConfig& config, SqliteJournal& journal) {
  DDPRUN_ASSIGN_OR_RETURN(SqliteJournal::Loaded loaded, journal.Load());
  DDPRUN_RETURN_IF_ERROR(SetDamagedAside(config, loaded.damaged, journal));
  for (KeptJob& job : loaded.jobs) {
    if (config.host != 0) MarkFormerHost(Incarnation(config.host), job.record);
  }
  return std::move(loaded.jobs);
}

// Opens the journal for the records of a former service and of this one. If the user named the
// folder, or a job is to be resumed from it, an error ends the service; otherwise jobs run without
// a journal.
absl::Status OpenJournal(const ServeConfig& config, EventLoop* loop, EtcdSeat* seat,
                         std::function<void(absl::Status)> on_lost, ServerOptions& options) {
  if (seat != nullptr) {
    options.journal = seat->journal();
    options.kept = seat->kept();
    options.first_term = Term(static_cast<uint64_t>(config.etcd->revision));
    return absl::OkStatus();
  }
  if (config.state_dir.empty()) return absl::OkStatus();
  const bool wanted = config.state_outlives_machine || config.again;
  absl::StatusOr<std::unique_ptr<SqliteJournal>> journal = OpenFolder(
      config, loop,
      {.outlives_machine = config.state_outlives_machine, .on_taken_over = std::move(on_lost)});
  absl::StatusOr<std::vector<KeptJob>> kept;
  if (journal.ok()) kept = LoadJobs(config, **journal);
  absl::Status status = journal.ok() ? kept.status() : journal.status();
  if (!status.ok()) {
    if (wanted) return status;
    Notify(absl::StrCat("warning: ", status.message(),
                        ". The job goes on, but it ends if its rendezvous service does"));
    return absl::OkStatus();
  }
  options.journal = *std::move(journal);
  options.kept = *std::move(kept);
  return absl::OkStatus();
}

// Params: on_lost: called when the leadership is over.
absl::Status TakeSeat(const ServeConfig& config, EventLoop* loop,
                      std::function<void(absl::Status)> on_lost, std::unique_ptr<EtcdSeat>& seat) {
  if (!config.etcd.has_value()) return absl::OkStatus();
  DDPRUN_ASSIGN_OR_RETURN(seat, EtcdSeat::Take(loop, *config.etcd, std::move(on_lost)));
  return absl::OkStatus();
}

}  // namespace

int ServeMain(const ServeConfig& config) {
  signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();  // each agent has two or three connections
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  absl::StatusOr<EventLog> events = OpenEvents(config);
  if (!loop.ok() || !events.ok()) {
    NotifyReady(config, loop.ok() ? events.status() : loop.status());
    return 1;
  }
  ServerOptions options;
  options.listen = config.listen;
  options.socket = config.socket;
  options.token = config.token;
  options.tls = config.tls;
  options.only_run_id = config.only_run_id;
  std::string ended;
  options.on_only_job_ended = [&loop, &ended](const std::string& how) {
    ended = how;
    (*loop)->Stop();
  };
  options.on_record_stale = [&config](const std::string& why) {
    if (config.ready_fd >= 0) NotifyAgent(config, "stale", why);
  };
  ConnectionSender store(loop->get(), config.store_fd);
  if (config.store_fd >= 0) {
    options.on_store = [&store](Fd connection) { store.Send(std::move(connection)); };
  }
  absl::Status lost;
  const auto on_lost = [&loop, &lost](absl::Status why) {  // another service may have the job
    lost = std::move(why);
    (*loop)->Stop();
  };
  std::unique_ptr<EtcdSeat> seat;
  absl::Status status = TakeSeat(config, loop->get(), on_lost, seat);
  if (status.ok()) status = OpenJournal(config, loop->get(), seat.get(), on_lost, options);
  if (!status.ok()) {
    NotifyReady(config, status);
    return 1;
  }
  absl::StatusOr<std::unique_ptr<RendezvousServer>> server =
      RendezvousServer::Start(loop->get(), &*events, std::move(options));
  status = server.status();
  if (status.ok() && seat != nullptr) status = seat->Publish((*server)->port());
  if (!status.ok()) {
    NotifyReady(config, status);
    return 1;
  }
  std::unique_ptr<FdWatch> life;
  bool agent_gone = false;
  std::vector<std::unique_ptr<SignalWatch>> signals;
  if (config.life_fd >= 0) {
    life = WatchLife(loop->get(), config.life_fd, &agent_gone);
  } else {
    for (const int number : {SIGINT, SIGTERM}) {
      signals.push_back(
          std::make_unique<SignalWatch>(loop->get(), number, [&loop] { (*loop)->Stop(); }));
    }
  }
  const std::unique_ptr<WebServer> page = ShowStatusPage(config, *events, (*loop)->Now(), **server);
  NotifyReady(config, (*server)->port(), page == nullptr ? 0 : page->port());
  if (config.life_fd < 0) WarnIfOpen(config);
  (*loop)->Run();
  (*server)->Shutdown();
  if (seat != nullptr) seat->Leave(/*node_lives=*/!agent_gone, ended);
  if (lost.ok()) return 0;
  Log(LogLevel::kWarning, absl::StrCat("the rendezvous service ends: ", lost.message()));
  return kLeadershipLost;
}

}  // namespace ddprun::rendezvous
