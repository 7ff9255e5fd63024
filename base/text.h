#ifndef DDPRUN_BASE_TEXT_H_
#define DDPRUN_BASE_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun {

// Text helpers of command lines and reports. Pure; threads: any.

// Breaks prose into lines of at most `width` bytes at blanks; newlines stay. A word that is longer
// has a line for itself. Lines have no blanks at their ends.
std::vector<std::string> WrapText(absl::string_view text, size_t width);

// `bytes` without what could steer a terminal: escape sequences (ECMA-48: colours, cursor moves,
// titles) and control characters are dropped, newlines and tabs stay, "\r\n" and a lone '\r' become
// a newline. Bytes from 0x80 on are kept as they are.
std::string Printable(absl::string_view bytes);

// True for well-formed UTF-8 (RFC 3629), which texts on the wire must be.
bool IsUtf8(absl::string_view bytes);

// Bytes of the UTF-8 character that `bytes` (not empty) begins with; 0 = it is none. RFC 3629 §4:
// no overlong forms, no surrogates, nothing beyond U+10FFFF.
size_t CharacterLength(absl::string_view bytes);
// Whether the byte is one of a UTF-8 character, and not its first.
bool ContinuesCharacter(char byte);
// The length of the longest beginning of `text` that has at most `bytes_max` bytes and ends between
// two characters.
size_t CutLength(absl::string_view text, size_t bytes_max);

// One value of the user's inside a sentence: control characters escaped, at most `bytes_max` bytes
// of it and "…" for the rest. Returns: UTF-8; a value that isn't comes out in ASCII, with "\xff".
std::string Shown(absl::string_view value, size_t bytes_max);

// A value of the user's in quotes, at most 120 bytes of it: for error messages.
std::string Quoted(absl::string_view value);

// "1 node", "3 nodes"; a count as the user typed it: "1 node", "2:4 nodes".
std::string CountText(uint64_t count, absl::string_view noun);
std::string CountText(absl::string_view count, absl::string_view noun);

// "1.5 GiB"; up to 1023 "512 bytes".
std::string BytesText(uint64_t bytes);

// Python's string.Template.safe_substitute(): $name and ${name} become values["name"], "$$" becomes
// "$", all other text is unchanged. Names are [A-Za-z_][A-Za-z0-9_]*.
std::string Substitute(absl::string_view text, const std::map<std::string, std::string>& values);

// The last part of a path: "train.py" of "/a/train.py", "a" of "/a/".
std::string BaseName(const std::string& path);

// FNV-1a, 64 bits (Fowler, Noll, Vo): the same on every machine and in every release, which
// absl::Hash is not. A digest against mistakes, not against attackers.
uint64_t StableHash(absl::string_view bytes);

// Returns the line of a program's last output that says why it ended, without the stack:
//   the exception below Python's last traceback ("ModuleNotFoundError: No module named 'cv2'"),
//   also if torch.distributed put "[rank1]: " before each of its lines;
//   else the text of a C++ exception ("  what():  out of range");
//   else the last line in which an interpreter, shell or option parser reports an error ("train.py:
//   error: unrecognized arguments: --lr", "python3: can't open file 'x'"), or that begins with
//   "Error: ".
// "" = no line is of these kinds: any other last line may be about anything. The line has no blanks
// at its ends. Pure; threads: any.
std::string ErrorLine(absl::string_view last_words);

// The candidate that a typing error of one or two letters makes to `word`, for "did you mean"; "" =
// none. Of several the first of the nearest. Pure; threads: any.
std::string NearestWord(const std::string& word, const std::vector<std::string>& candidates);

// The name of a signal: "SIGKILL" for 9, "SIGRTMIN+2" for 36, "signal 99" for what is none.
// Threads: any.
std::string SignalName(int signal_number);

}  // namespace ddprun

#endif  // DDPRUN_BASE_TEXT_H_
