// Replaces the system calls that change files (in this executable, for the library too) so that a
// test can fail, shorten, interrupt or skip the n-th of them, die there, or cut the power.
#pragma once

#include <cstddef>

namespace onnx_external {

enum class Fault {
  kNone,
  kFailOnce,     // the n-th call fails with `error_number`
  kFailForever,  // the n-th and all later ones
  kKill,         // SIGKILL before the n-th
  kPowerCut,     // before the n-th the file system stops (set_power_cut_target), then SIGKILL
  kShort,        // every call moves fewer bytes than asked for, every third is interrupted
  kInterrupt,    // as kFailOnce with EINTR, at calls that Linux can interrupt
  kLie,          // the n-th call claims success and does nothing
};

// Steps of the protocol that can be taken out, to see that the tests notice.
enum class Sabotage {
  kNone,
  kNoSync,       // fsync and syncfs do nothing
  kModelFirst,   // the first rename into the output folder waits until the model's is done
  kNoCleanup,    // unlink does nothing
  kNoFreeSpace,  // the file system does not tell how much is free
};

// What the file system can do.
struct FileSystem {
  bool rename_flags = true;  // many that FUSE makes have none
  bool locks = true;
  bool room = true;  // false: nothing can be reserved (fallocate)
  // Errors of calls that fail always; 0: they work.
  int copies = 0;          // copy_file_range and splice
  int reservations = 0;    // fallocate
  int folder_syncs = 0;    // fsync
  int renames = 0;         // of files and folders
  int folder_renames = 0;  // of folders that have entries
  int replacements = 0;    // renames to a name that something has
};

// Lasts until it is called again.
void pretend(FileSystem system);

// From now on counts calls anew and applies the fault; cleaning up (unlink) never fails.
void inject(Fault fault, std::size_t nth = 0, int error_number = 0);

// Lasts until it is called again.
void sabotage(Sabotage step);

// A folder on the file system that kPowerCut stops (ext4 and xfs can). Nothing that was not synced
// reaches the disk.
void set_power_cut_target(const char* folder);

// Stops that file system at once. False where it cannot.
bool cut_power();

// Calls of syncfs since inject().
std::size_t syncs_of_file_systems();

// Files that were synced again although a sync of them had failed, since inject().
std::size_t syncs_after_a_failure();

// Ends it; returns how many calls there were.
std::size_t stop_injecting();

}  // namespace onnx_external
