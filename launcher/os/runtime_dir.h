#ifndef DDPRUN_LAUNCHER_OS_RUNTIME_DIR_H_
#define DDPRUN_LAUNCHER_OS_RUNTIME_DIR_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddprun::launcher {

// A directory of one agent's life, mode 0700, for sockets: ddprun_XXXXXX in $XDG_RUNTIME_DIR, or
// the first of TemporaryFolders() that can be written. Removed with all that is in it when
// destroyed; of an agent that is killed the keeper removes it, and if that was killed, too, another
// agent that ends a minute or more later (RemoveDeadRuntimeDirs()).
class RuntimeDir {
 public:
  // Errors: where none can be written, the first one's, of mkdtemp(3) or TryFolder();
  // INVALID_ARGUMENT when it would be too long for a unix socket (sun_path has 108 bytes).
  static absl::StatusOr<RuntimeDir> Create();

  RuntimeDir(RuntimeDir&& other) noexcept;
  RuntimeDir& operator=(RuntimeDir&&) = delete;
  ~RuntimeDir();

  const std::string& path() const { return path_; }
  // A file of that name in it.
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  // Says where the service of kServiceSocket listens over TCP: "[::]:29400". Errors: of symlink(2).
  absl::Status PublishServicePort(const std::string& listen) const;
  // Leaves the directory to somebody else: a child process after fork(2) must not remove it.
  void Disown() { path_.clear(); }

 private:
  explicit RuntimeDir(std::string path) : path_(std::move(path)) {}
  std::string path_;  // "" = nothing to remove
};

// How the service of an agent listens for the job's owner, in the agent's directory.
inline constexpr char kServiceSocket[] = "service.sock";

// Where the service of an agent keeps what outlives it, unless the user names another folder.
inline constexpr char kServiceState[] = "service";

// How an agent listens for its workers, and for who reads their logs.
inline constexpr char kAgentSocket[] = "agent.sock";

// The sockets of that name of this user's jobs on this machine:
// "unix:/tmp/ddprun_a1b2c3/service.sock", in the order of their paths. Nobody may listen on some:
// those of agents that are just ending.
std::vector<std::string> FindLocalSockets(const std::string& name);

// A service of this user's on this machine.
struct LocalService {
  std::string socket;  // "unix:/tmp/ddprun_a1b2c3/service.sock"
  std::string listen;  // as PublishServicePort() had it; "" = it listens on the socket alone
};
// In the order of their sockets' paths; nobody may listen on some, as above.
std::vector<LocalService> FindLocalServices();

// Whether who listens on such a socket has this process's network: an address in another network
// namespace (a container's that shares /tmp) may be a stranger's here. False where who listens is
// in a PID namespace that isn't below ours: nothing can be told of it.
bool SharesOurNetwork(const std::string& socket);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_RUNTIME_DIR_H_
