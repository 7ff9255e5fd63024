#include "launcher/keeper/channel.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/packet.h"
#include "base/status_macros.h"

namespace ddprun::launcher {
namespace {

constexpr char kInPacket = 'p';
constexpr char kInFile = 'f';
constexpr size_t kPacketBytesMax = 32 << 10;

absl::StatusOr<Fd> ToMemoryFile(absl::string_view bytes) {
  Fd file(memfd_create("ddprun-message", MFD_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, "memfd_create");
  DDPRUN_RETURN_IF_ERROR(WriteAll(file.get(), bytes));
  return file;
}

absl::StatusOr<std::string> FromMemoryFile(int file) {
  struct stat info {};
  if (fstat(file, &info) != 0) return ErrnoStatus(errno, "fstat of a message");
  if (info.st_size < 0 || static_cast<size_t>(info.st_size) > kMessageBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a message of ", info.st_size, " bytes"));
  }
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n =
        pread(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return absl::InvalidArgumentError("a message that ends early");
    done += static_cast<size_t>(n);
  }
  return bytes;
}

// Errors that say something about this message, not about the peer.
bool IsShortage(int error) {
  return error == ENOBUFS || error == ENOMEM || error == EMSGSIZE || error == ETOOMANYREFS;
}

}  // namespace

absl::Status SendQueue::Send(absl::string_view bytes, std::vector<Fd> fds) {
  if (bytes.size() > kMessageBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("a message of ", bytes.size(),
                                                     " bytes to the keeper; at most ",
                                                     kMessageBytesMax, " can be sent"));
  }
  if (waiting_.size() >= kWaitingMax) {
    return absl::ResourceExhaustedError("too many messages wait for the keeper");
  }
  Message packet{.bytes = std::string(1, kInPacket), .fds = std::move(fds)};
  if (bytes.size() < kPacketBytesMax) {
    absl::StrAppend(&packet.bytes, bytes);
  } else {
    auto file = ToMemoryFile(bytes);
    if (!file.ok()) return absl::ResourceExhaustedError(file.status().message());
    packet.bytes[0] = kInFile;
    packet.fds.insert(packet.fds.begin(), *std::move(file));
  }
  int error = waiting_.empty() ? SendPacket(channel_, packet.bytes, packet.fds) : EAGAIN;
  if (error == EAGAIN) {
    waiting_.push_back(std::move(packet));
    error = 0;
  }
  if (error == 0) return absl::OkStatus();
  absl::Status status = ErrnoStatus(error, "send to the keeper channel");
  return IsShortage(error) ? absl::ResourceExhaustedError(status.message()) : status;
}

absl::Status SendQueue::Flush() {
  while (!waiting_.empty()) {
    const Message& next = waiting_.front();
    const int error = SendPacket(channel_, next.bytes, next.fds);
    if (error == EAGAIN || error == ENOBUFS || error == ENOMEM || error == ETOOMANYREFS) break;
    if (error != 0) return ErrnoStatus(error, "send to the keeper channel");
    waiting_.pop_front();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Message>> ReceiveMessage(int channel) {
  Message message{.bytes = std::string(kPacketBytesMax + 1, '\0')};
  Packet packet = ReceivePacket(channel, &message.bytes);
  if (packet.size < 0 && errno == EAGAIN) return std::nullopt;
  if (packet.size <= 0) return absl::OutOfRangeError("the peer has closed the keeper channel");
  message.fds = std::move(packet.fds);
  const char where = message.bytes[0];
  if (packet.cut || (where != kInPacket && where != kInFile) ||
      (where == kInFile && message.fds.empty())) {
    return absl::InvalidArgumentError("a malformed packet on the keeper channel");
  }
  if (where == kInPacket) {
    message.bytes.resize(static_cast<size_t>(packet.size));
    message.bytes.erase(0, 1);
    return message;
  }
  DDPRUN_ASSIGN_OR_RETURN(message.bytes, FromMemoryFile(message.fds.front().get()));
  message.fds.erase(message.fds.begin());
  return message;
}

}  // namespace ddprun::launcher
