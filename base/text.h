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

}  // namespace ddprun

#endif  // DDPRUN_BASE_TEXT_H_
