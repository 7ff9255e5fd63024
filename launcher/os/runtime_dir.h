#ifndef DDPRUN_LAUNCHER_OS_RUNTIME_DIR_H_
#define DDPRUN_LAUNCHER_OS_RUNTIME_DIR_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace ddprun::launcher {

// A directory for sockets that exists as long as an agent, mode 0700: ddprun_XXXXXX in
// $XDG_RUNTIME_DIR, or in the first that can be written of TemporaryFolders() and /run/user/UID,
// the working folder as the last. The destructor
// removes it with its contents. If the agent is killed, its keeper removes the directory; if that
// was killed, too, another agent that ends a minute or more later does (RemoveDeadRuntimeDirs()).
class RuntimeDir {
 public:
  // Errors: if no folder can be written, that of the first one, of mkdtemp(3) or TryFolder(), with
  // the list of all;
  // INVALID_ARGUMENT if the path would be too long for a unix socket (sun_path has 108 bytes).
  static absl::StatusOr<RuntimeDir> Create();

  RuntimeDir(RuntimeDir&& other) noexcept;
  RuntimeDir& operator=(RuntimeDir&&) = delete;
  ~RuntimeDir();

  const std::string& path() const { return path_; }
  // The path of a file of that name in the directory.
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  // Says where the service of kServiceSocket listens over TCP: "[::]:29400". Errors: of symlink(2).
  absl::Status PublishServicePort(const std::string& listen) const;
  // The destructor won't remove the directory. For a child after fork(2).
  void Disown() { path_.clear(); }

 private:
  explicit RuntimeDir(std::string path) : path_(std::move(path)) {}
  std::string path_;  // "" = nothing to remove
};

// The socket in an agent's directory at which its service serves the job's owner.
inline constexpr char kServiceSocket[] = "service.sock";

// The folder of the service's state, unless the user names another one.
inline constexpr char kServiceState[] = "service";

// The socket at which an agent serves its workers, and readers of their logs.
inline constexpr char kAgentSocket[] = "agent.sock";

// The sockets of that name of this user's jobs on this machine:
// "unix:/tmp/ddprun_a1b2c3/service.sock", in the order of their paths. Sockets of agents that are
// just ending may have no listener.
std::vector<std::string> FindLocalSockets(const std::string& name);

// A service of this user on this machine.
struct LocalService {
  std::string socket;  // "unix:/tmp/ddprun_a1b2c3/service.sock"
  std::string listen;  // the address of PublishServicePort(); "" = listens only on the socket
};
// In the order of their sockets' paths; some may have no listener, as above.
std::vector<LocalService> FindLocalServices();

// Whether the listener of such a socket is in this process's network namespace. If not (a container
// that shares /tmp), its address may belong to another machine here. Also false if the listener is
// in a PID namespace that isn't below ours, because its namespace can't be read then.
bool SharesOurNetwork(const std::string& socket);

// Removes this user's runtime directories (RuntimeDir) of dead agents in `base`. A keeper removes
// its agent's directory, but agents that were killed together with their keepers (a reboot, `kill
// -9 -1`) leave theirs. An agent is dead if its sockets have no listener; so is a `ddprun
// rendezvous`, which has only the service's socket. A directory without sockets may belong to an
// agent that is just starting. Directories that changed within `least_age` stay, because a socket
// also refuses callers between bind(2) and listen(2). Nothing is removed if other machines may
// share the file system of `base`: their sockets refuse us, too. Bound: 64 directories a call.
// Threads: any.
void RemoveDeadRuntimeDirs(const std::string& base, absl::Duration least_age = absl::Minutes(1));

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_RUNTIME_DIR_H_
