#include "fuzz/pickle_mutator.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/pieces.h"
#include "support/pickle_builder.h"

namespace onnx_external {
namespace {

// How an opcode's argument is written. Source: CPython Lib/pickletools.py.
enum class Form { kNone, kFixed, kLine, kTwoLines, kCounted };
struct OpKind {
  char code;
  Form form;
  std::size_t bytes = 0;  // of a fixed argument, or of the count
};

constexpr auto kOps = std::to_array<OpKind>(
    {{'(', Form::kNone},          {'.', Form::kNone},          {'N', Form::kNone},
     {')', Form::kNone},          {']', Form::kNone},          {'}', Form::kNone},
     {'a', Form::kNone},          {'e', Form::kNone},          {'s', Form::kNone},
     {'u', Form::kNone},          {'R', Form::kNone},          {'b', Form::kNone},
     {'Q', Form::kNone},          {'t', Form::kNone},          {'0', Form::kNone},
     {'1', Form::kNone},          {'2', Form::kNone},          {'l', Form::kNone},
     {'d', Form::kNone},          {'o', Form::kNone},          {'\x81', Form::kNone},
     {'\x85', Form::kNone},       {'\x86', Form::kNone},       {'\x87', Form::kNone},
     {'\x88', Form::kNone},       {'\x89', Form::kNone},       {'\x8f', Form::kNone},
     {'\x90', Form::kNone},       {'\x91', Form::kNone},       {'\x92', Form::kNone},
     {'\x93', Form::kNone},       {'\x94', Form::kNone},       {'\x97', Form::kNone},
     {'\x98', Form::kNone},       {'\x80', Form::kFixed, 1},   {'K', Form::kFixed, 1},
     {'q', Form::kFixed, 1},      {'h', Form::kFixed, 1},      {'\x82', Form::kFixed, 1},
     {'M', Form::kFixed, 2},      {'\x83', Form::kFixed, 2},   {'J', Form::kFixed, 4},
     {'r', Form::kFixed, 4},      {'j', Form::kFixed, 4},      {'\x84', Form::kFixed, 4},
     {'G', Form::kFixed, 8},      {'\x95', Form::kFixed, 8},   {'I', Form::kLine},
     {'L', Form::kLine},          {'F', Form::kLine},          {'S', Form::kLine},
     {'V', Form::kLine},          {'p', Form::kLine},          {'g', Form::kLine},
     {'P', Form::kLine},          {'c', Form::kTwoLines},      {'i', Form::kTwoLines},
     {'\x8a', Form::kCounted, 1}, {'\x8c', Form::kCounted, 1}, {'U', Form::kCounted, 1},
     {'C', Form::kCounted, 1},    {'X', Form::kCounted, 4},    {'T', Form::kCounted, 4},
     {'B', Form::kCounted, 4},    {'\x8b', Form::kCounted, 4}, {'\x8d', Form::kCounted, 8},
     {'\x8e', Form::kCounted, 8}, {'\x96', Form::kCounted, 8}});

// Names that readers know.
constexpr auto kGlobals =
    std::to_array<std::string_view>({"torch._utils\n_rebuild_tensor_v2\n",
                                     "torch._utils\n_rebuild_tensor\n",
                                     "torch._utils\n_rebuild_tensor_v3\n",
                                     "torch._utils\n_rebuild_qtensor\n",
                                     "torch._utils\n_rebuild_sparse_tensor\n",
                                     "torch._utils\n_rebuild_sparse_csr_tensor\n",
                                     "torch._utils\n_rebuild_parameter\n",
                                     "torch._utils\n_rebuild_parameter_with_state\n",
                                     "torch._utils\n_rebuild_device_tensor_from_cpu_tensor\n",
                                     "torch._utils\n_rebuild_device_tensor_from_numpy\n",
                                     "torch._utils\n_rebuild_nested_tensor\n",
                                     "torch._tensor\n_rebuild_from_type_v2\n",
                                     "torch.nn.parameter\nParameter\n",
                                     "numpy.core.multiarray\n_reconstruct\n",
                                     "numpy.core.multiarray\nscalar\n",
                                     "numpy.core.numeric\n_frombuffer\n",
                                     "numpy\nndarray\n",
                                     "numpy\ndtype\n",
                                     "_codecs\nencode\n",
                                     "__builtin__\nbytes\n",
                                     "torch.storage\n_load_from_bytes\n",
                                     "collections\nOrderedDict\n",
                                     "torch\nSize\n",
                                     "torch.serialization\n_get_layout\n",
                                     "torch\nFloatStorage\n",
                                     "torch\nLongStorage\n",
                                     "torch\nHalfStorage\n",
                                     "torch\nBoolStorage\n",
                                     "torch\nComplexFloatStorage\n",
                                     "torch\nComplexHalfStorage\n",
                                     "torch\nQInt8Storage\n",
                                     "torch\nQUInt8Storage\n",
                                     "torch\nQInt32Storage\n",
                                     "torch.storage\nUntypedStorage\n",
                                     "torch\nQUInt4x2Storage\n",
                                     "torch\nfloat32\n",
                                     "torch\ncomplex32\n",
                                     "torch\nfloat8_e4m3fn\n",
                                     "torch\nuint16\n",
                                     "torch\nper_tensor_affine\n",
                                     "torch\nper_channel_affine\n",
                                     "torch\nper_channel_affine_float_qparams\n",
                                     "torch.jit._pickle\nbuild_tensorlist\n",
                                     "torch.jit._pickle\nrestore_type_tag\n",
                                     "__torch__\nNet\n",
                                     "torch.nn.modules.linear\nLinear\n",
                                     "transformers.cache_utils\nDynamicCache\n"});
constexpr auto kWords = std::to_array<std::string_view>({"storage",
                                                         "cpu",
                                                         "0",
                                                         "1",
                                                         "2",
                                                         "3",
                                                         "state_dict",
                                                         "weight",
                                                         "_parameters",
                                                         "_buffers",
                                                         "_modules",
                                                         "_non_persistent_buffers_set",
                                                         "torch.sparse_coo",
                                                         "torch.sparse_csr",
                                                         "torch.sparse_csc",
                                                         "torch.sparse_bsr",
                                                         "torch.sparse_bsc",
                                                         "f2",
                                                         "f4",
                                                         "f8",
                                                         "i8",
                                                         "b1",
                                                         "c8",
                                                         "O",
                                                         "V2",
                                                         "<",
                                                         ">",
                                                         "|",
                                                         "=",
                                                         "latin1",
                                                         "C",
                                                         "F",
                                                         "a.b",
                                                         "",
                                                         "..",
                                                         "__class__",
                                                         "conj",
                                                         "neg",
                                                         "key_cache",
                                                         "value_cache",
                                                         "state_dict_metadata",
                                                         "planner_data",
                                                         "storage_data",
                                                         "fqn",
                                                         "offset",
                                                         "offsets",
                                                         "sizes",
                                                         "size",
                                                         "index",
                                                         "chunks",
                                                         "properties",
                                                         "relative_path",
                                                         "length",
                                                         "transform_descriptors"});

struct Op {
  OpKind kind;
  std::string argument;  // without its count
  bool lies = false;     // the count is another one
};

const OpKind* kind_of(char code) {
  const auto found =
      std::find_if(kOps.begin(), kOps.end(), [&](const OpKind& kind) { return kind.code == code; });
  return found == kOps.end() ? nullptr : &*found;
}

// Bytes of the argument at the start of `rest`; nothing when they are not all there.
std::optional<std::size_t> argument_bytes(const OpKind& kind, std::string_view rest) {
  std::size_t end = kind.bytes;
  if (kind.form == Form::kCounted && rest.size() >= kind.bytes) {
    std::uint64_t count = 0;
    std::memcpy(&count, rest.data(), kind.bytes);
    end = count > rest.size() ? std::string_view::npos : kind.bytes + count;
  } else if (kind.form == Form::kLine || kind.form == Form::kTwoLines) {
    end = rest.find('\n');
    end = kind.form == Form::kTwoLines && end < rest.size() ? rest.find('\n', end + 1) : end;
    end = end < rest.size() ? end + 1 : end;
  }
  return end <= rest.size() ? std::optional(end) : std::nullopt;
}

// Bytes that are no opcode stand as opcodes without argument.
std::vector<Op> split(std::string_view bytes) {
  std::vector<Op> ops;
  while (!bytes.empty()) {
    const char code = bytes.front();
    bytes.remove_prefix(1);
    const OpKind* const kind = kind_of(code);
    const auto end = kind == nullptr ? std::nullopt : argument_bytes(*kind, bytes);
    if (!end) {
      ops.push_back({{code, Form::kNone}, ""});
      continue;
    }
    const std::size_t begin = kind->form == Form::kCounted ? kind->bytes : 0;
    ops.push_back({*kind, std::string(bytes.substr(begin, *end - begin))});
    bytes.remove_prefix(*end);
  }
  return ops;
}

std::string join(const std::vector<Op>& ops, Chance& chance) {
  std::string bytes;
  for (const Op& op : ops) {
    bytes += op.kind.code;
    if (op.kind.form == Form::kCounted) {
      put_le(bytes, op.lies ? chance.number() : op.argument.size(),
             static_cast<int>(op.kind.bytes));
    }
    bytes += op.argument;
  }
  return bytes;
}

std::string fresh_argument(const OpKind& kind, Chance& chance) {
  std::string argument;
  switch (kind.form) {
    case Form::kNone:
      break;
    case Form::kFixed:
      put_le(argument, chance.number(), static_cast<int>(kind.bytes));
      break;
    case Form::kLine:
      argument = chance.one_in(2) ? std::to_string(static_cast<std::int64_t>(chance.number()))
                                  : std::string(chance.pick(kWords));
      argument = (kind.code == 'S' ? "'" + argument + "'" : argument) + "\n";
      break;
    case Form::kTwoLines:
      argument = chance.pick(kGlobals);
      break;
    case Form::kCounted:
      if (kind.code == '\x8a' || chance.one_in(4)) {
        put_le(argument, chance.number(), chance.one_in(8) ? 3 : 8);
      } else {
        argument = chance.pick(kWords);
      }
      break;
  }
  return argument;
}

// A call that makes a tensor of one of the types, over record 0 to 3.
std::vector<Op> fresh_tensor(Chance& chance) {
  constexpr std::array kTypes = {DType::kFloat32,   DType::kInt64,     DType::kFloat16,
                                 DType::kComplex32, DType::kComplex64, DType::kBool};
  const DType type = chance.pick(kTypes);
  const auto rows = static_cast<std::int64_t>(chance.below(4));
  PickleBuilder pickle;
  put_tensor(pickle, {.dtype = type, .shape = {rows, 1}}, std::to_string(chance.below(4)),
             chance.below(3) * 8 + 8);
  return split(pickle.bytes());
}

void change_argument(Op& op, Chance& chance) {
  if (op.kind.form == Form::kNone) {
    op.kind = chance.pick(kOps);
    op.argument = fresh_argument(op.kind, chance);
  } else if (chance.one_in(3)) {
    op.argument = fresh_argument(op.kind, chance);
  } else if (op.kind.form == Form::kCounted && chance.one_in(6)) {
    op.lies = true;
  } else {
    op.argument = mutated(op.argument, op.kind.form == Form::kFixed ? 0 : 8);
    op.argument.resize(op.kind.form == Form::kFixed ? op.kind.bytes : op.argument.size());
  }
}

void mutate(std::vector<Op>& ops, Chance& chance) {
  const auto at = [&] {
    return ops.begin() + static_cast<std::ptrdiff_t>(chance.below(ops.size()));
  };
  const std::size_t place = chance.below(ops.size());
  const std::size_t run = std::min(chance.one_in(2) ? 1 : 1 + chance.below(24), ops.size() - place);
  const auto begin = ops.begin() + static_cast<std::ptrdiff_t>(place);
  const std::vector<Op> taken(begin, begin + static_cast<std::ptrdiff_t>(run));
  switch (chance.below(8)) {
    case 0:
      ops.erase(begin, begin + static_cast<std::ptrdiff_t>(run));
      break;
    case 1:
      ops.insert(at(), taken.begin(), taken.end());
      break;
    case 2:
      std::swap(*begin, *at());
      break;
    case 3: {
      const OpKind& kind = chance.pick(kOps);
      ops.insert(begin, {kind, fresh_argument(kind, chance)});
      break;
    }
    case 4: {
      const std::vector<Op> tensor = fresh_tensor(chance);
      ops.insert(begin, tensor.begin(), tensor.end());
      break;
    }
    case 5:
      if (const Op& other = *at(); other.kind.form == begin->kind.form) {
        begin->argument = std::string(other.argument);
      }
      break;
    default:
      change_argument(*begin, chance);
  }
}

}  // namespace

// One to four changes.
std::string mutate_pickle(std::string_view bytes, Chance& chance) {
  std::vector<Op> ops = split(bytes);
  for (std::size_t left = 1 + chance.below(4); left > 0 && !ops.empty(); --left) {
    mutate(ops, chance);
  }
  return join(ops, chance);
}

std::size_t mutate_pickle_input(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                unsigned seed) {
  return mutate_input(data, size, max_size, seed, 4, mutate_pickle);
}

std::size_t mutate_pieces_input(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                unsigned seed) {
  return mutate_input(data, size, max_size, seed, 4, [](std::string_view rest, Chance& chance) {
    std::array<std::string, 3> parts;
    parts[0] = take_piece(rest);
    parts[1] = take_piece(rest);
    parts[2] = rest;
    std::string& part = chance.pick(parts);
    part = mutate_pickle(part, chance);
    return piece(parts[0]) + piece(parts[1]) + parts[2];
  });
}

}  // namespace onnx_external
