// Implements the virtual machine for Pickle::parse(), which has a stack, a memo, and one step for
// each opcode. It records calls without making them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_reader.h"
#include "checkpoint/pickle/pickle.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The virtual machine. Call run() once after construction.
class PickleMachine {
 public:
  explicit PickleMachine(PickleText text);
  [[nodiscard]] Result<Pickle> run();

 private:
  // Nodes that exist in every pickle. Node 0 is reserved for None, so that 0 can mean "no block"
  // in chains.
  static constexpr NodeId kNoneId = 0;
  static constexpr NodeId kFalseId = 1;
  static constexpr NodeId kTrueId = 2;
  static constexpr NodeId kEmptyTupleId = 3;

  // The steps for the opcodes of protocol 2 (which torch writes), of protocols 3 to 5, and of the
  // text protocol 0. run() puts "byte N: opcode 'X'" in front of their error messages.
  [[nodiscard]] Status step(char op);
  [[nodiscard]] Status step_modern(char op);
  [[nodiscard]] Status step_text(char op);
  [[nodiscard]] Status refuse(char op) const;

  // Steps for values.
  template <typename Integer>
  [[nodiscard]] Status push_integer();
  [[nodiscard]] Status push_long(std::uint64_t length);
  template <typename Length>
  [[nodiscard]] Status push_counted(NodeKind kind);
  [[nodiscard]] bool is_cut(NodeKind kind, std::uint64_t length) const;
  [[nodiscard]] Status push_float();
  [[nodiscard]] Status push_text_integer();
  [[nodiscard]] Status push_text_string();
  [[nodiscard]] Status push_text_unicode();
  [[nodiscard]] Status check_protocol();
  [[nodiscard]] Status check_frame();

  // Steps for collections and objects.
  [[nodiscard]] Status pop_into_tuple(std::size_t count);
  [[nodiscard]] Status collect_marked(NodeKind kind);
  [[nodiscard]] Status append_one();
  [[nodiscard]] Status append_marked(NodeKind target);
  [[nodiscard]] Status set_item();
  [[nodiscard]] Status global_from_lines();
  [[nodiscard]] Status global_from_stack();
  [[nodiscard]] Status check_callable(NodeId id) const;
  [[nodiscard]] Status call(std::size_t operands);
  [[nodiscard]] Status call_marked(bool symbol_in_lines);
  [[nodiscard]] Status build();
  [[nodiscard]] Status persistent();

  // Steps for the memo and the stack.
  [[nodiscard]] Status put(std::uint32_t index);
  [[nodiscard]] Status get(std::uint32_t index);
  template <typename Index>
  [[nodiscard]] Status put_read();
  template <typename Index>
  [[nodiscard]] Status get_read();
  [[nodiscard]] Result<std::uint32_t> index_line();
  [[nodiscard]] Status duplicate();
  [[nodiscard]] Status pop();
  [[nodiscard]] Status pop_to_mark();
  [[nodiscard]] Status stop();

  // Helper functions of the steps above.
  [[nodiscard]] Status need(
      std::size_t count) const;  // fails if there are fewer than `count` values above the last mark
  // Removes the mark, and returns the position of the first value above it.
  [[nodiscard]] Result<std::size_t> take_mark();
  [[nodiscard]] Result<std::string_view> line();
  [[nodiscard]] Result<NodeId> add(const PickleNode& node);
  [[nodiscard]] Result<NodeId> add_text(NodeKind kind, std::string_view view);
  [[nodiscard]] Result<NodeId> add_decoded(const std::string& text);
  [[nodiscard]] Result<NodeId> add_tuple(
      std::size_t from);  // pops all values from position `from` on
  [[nodiscard]] Result<NodeId> add_object(NodeId callable, NodeId arguments);
  [[nodiscard]] Status append_block(NodeId owner, NodeKind part, std::size_t from);
  [[nodiscard]] Status push(const Result<NodeId>& id) {
    if (!id) {
      return fail(id.error());
    }
    stack_.push_back(*id);
    return check_live();
  }
  // Checks the limit on references. This happens on every push, because a single-byte opcode can
  // add to any of these containers, and a small compressed file may contain many such opcodes.
  [[nodiscard]] Status check_live() const {
    constexpr std::size_t kFarWeight = 8;  // memory of a tree node relative to a dense entry
    const std::size_t live = marks_.size() + stack_.size() + memo_.size() +
                             kFarWeight * far_memo_.size() + pickle_.children_.size();
    return live <= kMaxReferencesPerNode * pickle_.text_.max_nodes ? Status()
                                                                   : too_many_references();
  }
  [[nodiscard]] Status too_many_references() const;
  [[nodiscard]] Status push_new(const PickleNode& node) { return push(add(node)); }

  Pickle pickle_;
  ByteReader reader_;
  std::vector<NodeId> stack_;
  std::vector<std::size_t> marks_;  // stack sizes at each MARK
  std::vector<NodeId> memo_;        // dense: indices 0, 1, 2, ...
  std::map<std::uint32_t, NodeId>
      far_memo_;  // sparse indices, in a tree, because a file could force hash collisions
  std::size_t next_cut_ = 0;
  bool stopped_ = false;
};

}  // namespace onnx_external
