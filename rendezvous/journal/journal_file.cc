#include "rendezvous/journal/journal_file.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/rng.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "rendezvous/journal/record_proto.h"

// The records of a service's jobs in one file of SQLite (R10).
//
// A service reports a decision only when Put() has returned OK. What Put() promises, and by what:
//
//   a record is whole, or not there      SQLite's rollback journal. Not the WAL: there a damaged
//                                        frame looks like the end, and the record before the last
//                                        would be believed.
//   a changed bit is noticed             the column crc; SQLite has no checksums of its own
//   it outlives a killed process         the kernel has what was written: synchronous = OFF
//   it outlives a crash of the machine   `synced`: synchronous = FULL
//   only one service writes              the lock, and the holder's file as a fence
//
// Why SQLite: in a file of ours, lock, checksum and syncing the directory would be our code, and
// people would have no tool for it. LMDB ends the process with SIGBUS on a truncated file.
//
// The first failed write is final: the job goes on without a journal, and the old record is deleted
// before agents hear anything new.
//
// The lock is fcntl(2)'s, which SQLite holds from Lock() to the end (locking_mode EXCLUSIVE). The
// kernel releases it when the process dies, and children of a fork(2) don't have it. But network
// file systems may keep the lock of a dead machine for minutes, or enforce locks on one machine
// alone. So a service also writes its name into journal.db.holder before it reads any record, and
// Put() looks at that file before and after the write. Without locks, with two services A and B:
//
//   A: Put(record 3)                       B: Open(), ReadAll()              the file
//   1  holder is A: goes on                                                  record 2
//   2                                      writes its name                   record 2
//   3                                      reads record 2                    record 2
//   4  writes record 3                                                       record 3
//   5  holder is B: ABORTED, A reports nothing
//
// The look after the write makes this safe: if the holder is still A there, then B, which writes
// its name before it reads, will read record 3. The look before the write alone would let A report
// a record that B doesn't have. The look after it alone would let a service that was replaced long
// ago overwrite the rows of its successor. With both, only a write that is under way can do that
// (steps 2 to 4), or damage the file; no check on one side can exclude it.
//
// The holder's file is replaced by rename(2), so a reader sees the old name or the new one. It has
// a random number, because two containers may have the same host name and process id.

namespace ddprun::rendezvous {
namespace {

constexpr int64_t kApplicationId = 0x64647072;  // "ddpr"
constexpr int64_t kFormat = 1;                  // grows when an older release can't read it
// The record of a job of 4,096 nodes has 1 MB, so that of kNodesMax nodes has some 4 MB.
constexpr size_t kRecordBytesMax = size_t{256} << 20;

constexpr char kTable[] =
    "CREATE TABLE jobs ("
    "run_id TEXT PRIMARY KEY NOT NULL, term TEXT NOT NULL, life INTEGER NOT NULL, "
    "generation INTEGER NOT NULL, phase TEXT NOT NULL, written_at TEXT NOT NULL, "
    "boot_id TEXT NOT NULL, made_ns INTEGER NOT NULL, record BLOB NOT NULL, crc INTEGER NOT NULL)";
constexpr char kPut[] =
    "INSERT OR REPLACE INTO jobs (run_id, term, life, generation, phase, written_at, boot_id, "
    "made_ns, record, crc) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

// Covers every column that ReadRow() uses. The others are for people with the tool sqlite3.
uint32_t ChecksumOf(const std::string& run_id, const std::string& boot, int64_t made_ns,
                    absl::string_view record) {
  const std::string head = absl::StrCat(run_id, "\n", boot, "\n", made_ns, "\n");
  const auto add = [](uLong sum, absl::string_view bytes) {
    return crc32_z(sum, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  };
  return static_cast<uint32_t>(add(add(crc32_z(0, nullptr, 0), head), record));
}

// The column "phase", which is for people.
const char* PhaseOf(const JobRecord& record) {
  if (record.verdict.has_value()) return "ended";
  if (!record.round.has_value()) return "forming";
  return record.round->closing.has_value() ? "closing" : "running";
}

absl::Status MakeFolder(const std::string& folder) {
  std::error_code error;
  const std::filesystem::path path(folder);
  // Missing parents get the usual rights: only the last folder is the journal's own.
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("the journal's folder ", Quoted(folder)));
  }
  return absl::OkStatus();
}

// Creates the file if there is none. An existing one isn't opened: closing any descriptor of a file
// drops all fcntl(2) locks that this process has on it, and SQLite in this process may have some.
absl::Status MakeFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd >= 0) {
    close(fd);
    return absl::OkStatus();
  }
  if (errno == EEXIST) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("the journal ", Quoted(path)));
}

std::string HolderFile(const std::string& path) { return path + ".holder"; }

// The content of the holder's file; "" = the file isn't there, or can't be read.
std::string ReadHolder(const std::string& path) {
  std::ifstream in(HolderFile(path));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The first line of the holder's file: "process 4242 on host1"; "" = unknown.
std::string NameOf(const std::string& holder) {
  return Shown(holder.substr(0, holder.find('\n')), 300);
}

std::string ThisMachine() {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  return host;
}

absl::Status WriteHolder(const std::string& path, const std::string& holder) {
  const std::string made = absl::StrCat(HolderFile(path), ".", RandomNumber());
  const Fd fd(open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  absl::Status status = fd.valid() ? WriteAll(fd.get(), holder) : absl::OkStatus();
  if (!fd.valid() || (status.ok() && rename(made.c_str(), HolderFile(path).c_str()) != 0)) {
    status = ErrnoStatus(errno, absl::StrCat("the journal's holder ", Quoted(HolderFile(path))));
  }
  if (!status.ok()) unlink(made.c_str());
  return status;
}

absl::StatusCode CodeOf(int code, int error_number) {
  switch (code & 0xFF) {
    case SQLITE_FULL:
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
      return absl::StatusCode::kDataLoss;
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return absl::StatusCode::kPermissionDenied;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::StatusCode::kUnavailable;
    default:
      break;
  }
  return error_number != 0 ? absl::ErrnoToStatusCode(error_number) : absl::StatusCode::kInternal;
}

}  // namespace

std::string BootId() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(in, boot);
  return boot;
}

// A prepared statement. Columns are numbered from 0 and parameters from 1, as in SQLite.
class JournalFile::Statement {
 public:
  Statement() = default;
  ~Statement() { sqlite3_finalize(raw); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // Requires: `text` outlives the statement.
  void Bind(int at, const std::string& text) {
    sqlite3_bind_text64(raw, at, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
  }
  void Bind(int at, int64_t number) { sqlite3_bind_int64(raw, at, number); }
  void BindBytes(int at, const std::string& bytes) {
    sqlite3_bind_blob64(raw, at, bytes.data(), bytes.size(), SQLITE_STATIC);
  }
  int64_t Number(int column) const { return sqlite3_column_int64(raw, column); }
  std::string Bytes(int column) const {
    const void* bytes = sqlite3_column_blob(raw, column);
    const auto size = static_cast<size_t>(sqlite3_column_bytes(raw, column));
    return bytes == nullptr ? "" : std::string(static_cast<const char*>(bytes), size);
  }

  sqlite3_stmt* raw = nullptr;
};

absl::StatusOr<std::unique_ptr<JournalFile>> JournalFile::Open(const std::string& folder,
                                                               bool synced,
                                                               const std::string& vfs) {
  DDPRUN_RETURN_IF_ERROR(MakeFolder(folder));
  std::unique_ptr<JournalFile> file(new JournalFile(folder + "/journal.db"));
  DDPRUN_RETURN_IF_ERROR(MakeFile(file->path_));
  DDPRUN_RETURN_IF_ERROR(file->Connect(synced, vfs));
  DDPRUN_RETURN_IF_ERROR(file->Lock());
  DDPRUN_RETURN_IF_ERROR(file->CheckFormat());
  return file;
}

JournalFile::~JournalFile() { sqlite3_close(db_); }

bool JournalFile::IsHeldElsewhere(const std::string& folder) {
  const std::string holder = NameOf(ReadHolder(folder + "/journal.db"));
  return !holder.empty() && !absl::EndsWith(holder, absl::StrCat(" on ", ThisMachine()));
}

absl::Status JournalFile::Connect(bool synced, const std::string& vfs) {
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int code =
      sqlite3_open_v2(path_.c_str(), &db_, kFlags, vfs.empty() ? nullptr : vfs.c_str());
  if (code != SQLITE_OK) return Error("can't be opened", code);
  if (sqlite3_db_readonly(db_, "main") == 1) {
    return absl::PermissionDeniedError(absl::StrCat("the journal ", Quoted(path_),
                                                    " can't be written to: give its owner the "
                                                    "right, or name another folder"));
  }
  DDPRUN_RETURN_IF_ERROR(Run("PRAGMA locking_mode = EXCLUSIVE"));
  return Run(synced ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = OFF");
}

absl::Status JournalFile::Lock() {
  // An exclusive transaction takes the lock, and locking_mode EXCLUSIVE keeps it.
  DDPRUN_RETURN_IF_ERROR(Run("BEGIN EXCLUSIVE; COMMIT"));
  DDPRUN_RETURN_IF_ERROR(TakeOver());
  // TRUNCATE keeps the rollback journal's file, so a record costs no change of the folder.
  return Run("PRAGMA journal_mode = TRUNCATE");
}

// Called before any record is read: a former holder finds this name after its next write, and
// discards that.
absl::Status JournalFile::TakeOver() {
  holder_ = absl::StrCat("process ", getpid(), " on ", ThisMachine(), "\n", RandomNumber(), "\n");
  return WriteHolder(path_, holder_);
}

absl::Status JournalFile::CheckIsOurs() const {
  std::string holder = ReadHolder(path_);
  // A missing file doesn't mean another holder: somebody removed it, and Put() reports a removed
  // journal by itself.
  if (holder.empty() && access(HolderFile(path_).c_str(), F_OK) != 0) return absl::OkStatus();
  // Some network file systems fail a read of a file that is being replaced (ESTALE): read again.
  if (holder.empty()) holder = ReadHolder(path_);
  if (holder == holder_) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("the journal ", Quoted(path_), " was taken over (",
                                         NameOf(holder), "): another service has the job now"));
}

absl::Status JournalFile::CheckFormat() {
  DDPRUN_ASSIGN_OR_RETURN(const int64_t tables, Number("SELECT count(*) FROM sqlite_master"));
  DDPRUN_ASSIGN_OR_RETURN(const int64_t application, Number("PRAGMA application_id"));
  DDPRUN_ASSIGN_OR_RETURN(const int64_t format, Number("PRAGMA user_version"));
  if (tables == 0 && application == 0 && format == 0) return Create();
  if (application != kApplicationId) {
    return absl::FailedPreconditionError(absl::StrCat("the file ", Quoted(path_),
                                                      " is another program's (application_id ",
                                                      application, "): name another folder"));
  }
  if (format > kFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat("the journal ", Quoted(path_), " is of a later release (format ", format,
                     ", this one knows ", kFormat,
                     "): upgrade ddprun here, or move it away to start the job "
                     "anew"));
  }
  return CheckWhole();
}

absl::Status JournalFile::CheckWhole() {
  Statement check;
  DDPRUN_RETURN_IF_ERROR(Prepare("PRAGMA integrity_check(1)", &check));
  const int code = sqlite3_step(check.raw);
  if (code != SQLITE_ROW) return Error("can't be checked", code);
  const std::string found = check.Bytes(0);
  return found == "ok" ? absl::OkStatus() : Damaged(Shown(found, 200));
}

absl::Status JournalFile::Create() {
  DDPRUN_RETURN_IF_ERROR(Run("BEGIN"));
  DDPRUN_RETURN_IF_ERROR(Run(kTable));
  DDPRUN_RETURN_IF_ERROR(Run(absl::StrCat("PRAGMA application_id = ", kApplicationId).c_str()));
  DDPRUN_RETURN_IF_ERROR(Run(absl::StrCat("PRAGMA user_version = ", kFormat).c_str()));
  return Run("COMMIT");
}

absl::StatusOr<FoundRecords> JournalFile::ReadAll() {
  Statement rows;
  DDPRUN_RETURN_IF_ERROR(Prepare(
      "SELECT run_id, boot_id, made_ns, record, crc, rowid FROM jobs ORDER BY run_id", &rows));
  FoundRecords all;
  while (true) {
    const int code = sqlite3_step(rows.raw);
    if (code == SQLITE_DONE) return all;
    if (code != SQLITE_ROW) return Error("can't be read", code);
    DatedRecord read;
    const std::string wrong = ReadRow(rows, &read);
    if (wrong.empty()) {
      all.sound.push_back(std::move(read));
      continue;
    }
    const std::string what = absl::StrCat("the record of job ", Quoted(read.run_id), wrong);
    all.damaged.push_back(
        {.row = rows.Number(5), .run_id = read.run_id, .what = what, .why = Damaged(what)});
  }
}

// Returns what is wrong with the row, as the end of a sentence: " is no record"; "" = nothing. The
// row is judged as strictly as a message from the network, because a wrong record would give ranks
// to wrong nodes; a lost one only starts the job anew.
std::string JournalFile::ReadRow(const Statement& row, DatedRecord* read) {
  read->run_id = row.Bytes(0);
  read->boot = row.Bytes(1);
  const int64_t made_ns = row.Number(2);
  read->made = Instant::FromNanoseconds(made_ns);
  const std::string bytes = row.Bytes(3);
  if (row.Number(4) != ChecksumOf(read->run_id, read->boot, made_ns, bytes)) {
    return " doesn't match its checksum";
  }
  v1::JobRecord proto;
  if (!proto.ParseFromString(bytes)) return " is no record";
  absl::StatusOr<JobRecord> record = FromProto(proto);
  if (!record.ok()) return absl::StrCat(": ", record.status().message());
  if (record->spec.has_value() && record->spec->run_id != read->run_id) {
    return absl::StrCat(" is that of job ", Quoted(record->spec->run_id));
  }
  read->record = *std::move(record);
  return "";
}

absl::Status JournalFile::SetAside(const DamagedRecord& damaged) {
  const std::string which = absl::StrCat(" FROM jobs WHERE rowid = ", damaged.row, "; ");
  return Run(absl::StrCat("BEGIN; CREATE TABLE IF NOT EXISTS damaged AS SELECT * FROM jobs WHERE 0;"
                          " INSERT INTO damaged SELECT *",
                          which, "DELETE", which, "COMMIT")
                 .c_str());
}

absl::Status JournalFile::Put(const DatedRecord& dated) {
  DDPRUN_RETURN_IF_ERROR(CheckIsOurs());
  const std::string bytes = ToProto(dated.record).SerializeAsString();
  if (bytes.size() > kRecordBytesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the journal ", Quoted(path_), ": a record of ", bytes.size(),
                     " bytes, at most ", kRecordBytesMax, " are kept"));
  }
  const JobRecord& record = dated.record;
  const std::string term = absl::StrCat(record.term.value());
  const std::string phase = PhaseOf(record);
  const std::string written = absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone());
  Statement put;
  DDPRUN_RETURN_IF_ERROR(Prepare(kPut, &put));
  put.Bind(1, dated.run_id);
  put.Bind(2, term);  // as text: a term has 64 bits, and SQLite's integers are signed
  put.Bind(3, static_cast<int64_t>(record.life));
  put.Bind(4, static_cast<int64_t>(record.generation.value()));
  put.Bind(5, phase);
  put.Bind(6, written);
  put.Bind(7, dated.boot);
  put.Bind(8, dated.made.nanoseconds());
  put.BindBytes(9, bytes);
  put.Bind(10, int64_t{ChecksumOf(dated.run_id, dated.boot, dated.made.nanoseconds(), bytes)});
  errno = 0;
  const int code = sqlite3_step(put.raw);
  if (code != SQLITE_DONE) return Error("can't be written", code);
  // An unlinked or moved file accepts writes that no later service can read.
  int moved = 0;
  sqlite3_file_control(db_, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  // A service that has taken the file over meanwhile may have read it before this record was in.
  if (moved == 0) return CheckIsOurs();
  return absl::NotFoundError(absl::StrCat("the journal ", Quoted(path_),
                                          " was removed or moved away while the service ran"));
}

absl::Status JournalFile::Drop(const std::string& run_id) {
  DDPRUN_RETURN_IF_ERROR(CheckIsOurs());
  Statement drop;
  DDPRUN_RETURN_IF_ERROR(Prepare("DELETE FROM jobs WHERE run_id = ?", &drop));
  drop.Bind(1, run_id);
  errno = 0;
  const int code = sqlite3_step(drop.raw);
  return code == SQLITE_DONE ? absl::OkStatus() : Error("can't be written", code);
}

// The database goes first. SQLite ignores a stale -journal beside a new, empty file; but a database
// that lost its -journal in the middle of a write would be read as it stands, half of it new.
absl::Status JournalFile::Remove(const std::string& path) {
  for (const std::string& each : {path, path + "-journal"}) {
    if (unlink(each.c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("the journal ", Quoted(each), " can't be removed"));
    }
  }
  return absl::OkStatus();
}

absl::Status JournalFile::Run(const char* sql) {
  errno = 0;
  const int code = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error("can't be set up", code);
}

absl::StatusOr<int64_t> JournalFile::Number(const char* sql) {
  Statement statement;
  DDPRUN_RETURN_IF_ERROR(Prepare(sql, &statement));
  const int code = sqlite3_step(statement.raw);
  if (code != SQLITE_ROW) return Error("can't be read", code);
  return statement.Number(0);
}

absl::Status JournalFile::Prepare(const char* sql, Statement* statement) {
  const int code = sqlite3_prepare_v2(db_, sql, -1, &statement->raw, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error("can't be read", code);
}

absl::Status JournalFile::Error(absl::string_view what, int code) const {
  // SQLite's code doesn't say which errno a failed system call had. errno still has it: Put(),
  // Drop() and Run() reset errno first, and nothing else has failed since.
  const int last = errno;
  const absl::StatusCode kind = CodeOf(code, 0);
  if (kind == absl::StatusCode::kDataLoss) return Damaged(sqlite3_errmsg(db_));
  if (kind == absl::StatusCode::kUnavailable) return Held();
  const std::string text =
      absl::StrCat("the journal ", Quoted(path_), " ", what, ": ", sqlite3_errstr(code));
  const bool told = (code & 0xFF) == SQLITE_IOERR || (code & 0xFF) == SQLITE_FULL ||
                    (code & 0xFF) == SQLITE_CANTOPEN;
  if (!told || last == 0) return {kind, text};
  return {CodeOf(code, last), ErrnoStatus(last, text).message()};
}

absl::Status JournalFile::Held() const {
  const std::string holder = NameOf(ReadHolder(path_));
  return absl::UnavailableError(absl::StrCat("the journal ", Quoted(path_),
                                             " belongs to another service that runs",
                                             holder.empty() ? "" : absl::StrCat(" (", holder, ")"),
                                             ": end that one, or name another folder"));
}

absl::Status JournalFile::Damaged(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat("the journal ", Quoted(path_), " is damaged: ", what,
                                          ". Move it away to start the job anew"));
}

}  // namespace ddprun::rendezvous
