#include "onnx_external/cut.h"

#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "base/directory.h"
#include "base/read_back.h"
#include "base/remedy.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/try.h"
#include "cut/parent_note.h"
#include "cut/piece_model.h"
#include "onnx/load.h"
#include "onnx/model_access.h"
#include "save/identity.h"
#include "save/model_builder.h"
#include "save/output_folder.h"
#include "save/transaction.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

// Where a piece is written. All names are relative to `folder`.
struct PieceTarget {
  Directory folder;
  std::string parent;
  std::string piece;
  bool replaces = false;
};

Status check_paths(const fs::path& model, const fs::path& piece) {
  const std::string name = piece.filename().string();
  if (const Status plain = check_relative_location(name); !plain || is_staging_name(name)) {
    return fail(ErrorCode::kInvalidArgument,
                "the piece " + quote(piece.string()) + " is not a valid file name here");
  }
  if (!ascii_lower(name).ends_with(".onnx")) {
    return fail(ErrorCode::kInvalidArgument,
                "the piece " + quote(name) +
                    " must have a name that ends with \".onnx\"; otherwise, it would lose its data "
                    "when the model that it was cut from is replaced");
  }
  if (!is_utf8(model.filename().string())) {
    return fail(ErrorCode::kInvalidArgument,
                "the model " + quote(model.string()) + ": its name is not UTF-8; rename it");
  }
  std::error_code error;
  if (!fs::equivalent(folder_of(model), folder_of(piece), error)) {
    return fail(ErrorCode::kInvalidArgument,
                "the piece must be in the folder of its model, because loaders reject data outside "
                "a model's folder; write it to " +
                    quote((folder_of(model) / name).string()));
  }
  if (fs::equivalent(model, piece, error)) {
    return fail(
        ErrorCode::kInvalidArgument,
        "the piece " + quote(name) + " would overwrite the model itself; choose another name");
  }
  return {};
}

// True if an older piece is to be replaced.
Result<bool> check_replaced(const Directory& folder, const std::string& piece,
                            Overwrite overwrite) {
  TRY_ASSIGN(const auto kind, folder.kind_of(piece));
  if (!kind) {
    return false;
  }
  if (overwrite == Overwrite::kRefuse) {
    return fail_with(ErrorCode::kAlreadyExists, folder.child(piece) + ": exists",
                     {{RemedyOption::kOverwrite, "", "replaces the older piece"}});
  }
  const auto old = kind == EntryKind::kFile ? load_model_file(folder.path() / piece)
                                            : fail(ErrorCode::kInvalidArgument, "");
  const auto note = old ? read_parent_note(*old->proto) : fail(old.error());
  if (!note || !*note) {
    return fail(
        ErrorCode::kAlreadyExists,
        folder.child(piece) + ": exists, but is not a piece; choose another name for the piece");
  }
  return true;
}

// Holds the folder's lock, so that no save replaces the parent meanwhile.
Result<PieceTarget> open_target(const fs::path& model, const fs::path& piece, Overwrite overwrite) {
  TRY(check_paths(model, piece));
  TRY_ASSIGN(auto folder, Directory::open(folder_of(model)));
  if (folder.try_lock() == false) {
    return fail(
        ErrorCode::kIo,
        folder.path().string() + ": a save is writing to this folder; wait until it has finished");
  }
  PieceTarget target{std::move(folder), model.filename().string(), piece.filename().string()};
  TRY_ASSIGN(target.replaces, check_replaced(target.folder, target.piece, overwrite));
  return target;
}

// The parent, with the text of its note.
struct Parent {
  Model model;
  std::string note;
};

Result<Parent> load_parent(const fs::path& path, const PieceTarget& target) {
  TRY_ASSIGN(const auto file, open_parent(target.folder, target.parent));
  TRY_ASSIGN(const auto crc, range_crc32(*file, 0, file->size()));
  TRY_ASSIGN(auto model, Model::load(path));
  TRY_ASSIGN(const auto again, open_parent(target.folder, target.parent));
  TRY(file->check_unchanged());
  if (!again->same_file(*file)) {
    return fail(ErrorCode::kCorrupt, path.string() + ": was replaced while it was being read");
  }
  return Parent{std::move(model), parent_note_text({target.parent, {file->size(), crc}})};
}

// Removes the staging folder when it goes out of scope.
class StagedPiece {
 public:
  StagedPiece(const PieceTarget& target, Sync sync) : target_(target), sync_(sync) {}
  StagedPiece(const StagedPiece&) = delete;
  StagedPiece& operator=(const StagedPiece&) = delete;
  ~StagedPiece() {
    if (!name_.empty()) {
      (void)target_.folder.remove_tree(name_);
    }
  }

  Status write(const PieceModel& piece, const Model& parent) {
    TRY_ASSIGN(name_, make_staging_folder(target_.folder));
    TRY_ASSIGN(staging_, target_.folder.open_folder(name_));
    WriteOptions write;
    write.sync = sync_;
    TRY(write_model_file(
        {*staging_, target_.piece, piece.segments, ModelAccess::cuts(parent), {}, write}));
    return sync_folder(*staging_, sync_);
  }

  Status publish() {
    TRY(rename_entry(*staging_, target_.piece, target_.folder, target_.piece,
                     target_.replaces ? Replace::kYes : Replace::kNo));
    return sync_folder(target_.folder, sync_);
  }

 private:
  const PieceTarget& target_;
  Sync sync_;
  std::string name_;  // of the staging folder
  std::optional<Directory> staging_;
};

}  // namespace

Result<Piece> cut_model(const Model& model, const CutOptions& options) {
  TRY_ASSIGN(auto made, make_piece_model(model, options, ""));
  TRY_ASSIGN(auto text, join_segments(std::move(made.segments), ModelAccess::cuts(model)));
  return Piece{std::move(text), std::move(made.report)};
}

Result<CutReport> cut_model_file(const fs::path& model_path, const fs::path& piece_path,
                                 const CutOptions& options, const CutFileOptions& file_options) {
  TRY_ASSIGN(const auto target, open_target(model_path, piece_path, file_options.overwrite));
  TRY_ASSIGN(const auto parent, load_parent(model_path, target));
  TRY_ASSIGN_IN(model_path.string(), auto piece,
                make_piece_model(parent.model, options, parent.note));
  StagedPiece staged(target, file_options.sync);
  TRY(staged.write(piece, parent.model));
  TRY(staged.publish());
  return std::move(piece.report);
}

}  // namespace onnx_external
