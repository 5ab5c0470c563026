// Pickles that attack: rows P1 to P5 of docs/security.md.
#include "checkpoint/pickle/pickle.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>

#include "mutants/meter.h"
#include "support/result_matchers.h"
#include "threats/threats.h"

namespace onnx_external {
namespace {

using namespace std::string_literals;

// What scanners of pickles know to run code, read or write files, or reach the network.
const std::vector<std::pair<std::string, std::vector<std::string>>>& dangerous() {
  static const std::vector<std::pair<std::string, std::vector<std::string>>> all{
      {"os", {"system", "popen", "execv", "spawnl", "remove", "rmdir", "_exit"}},
      {"posix", {"system", "popen", "execve", "fork", "kill", "unlink"}},
      {"nt", {"system", "startfile"}},
      {"builtins",
       {"eval", "exec", "compile", "open", "__import__", "getattr", "setattr", "apply"}},
      {"__builtin__", {"eval", "exec", "execfile", "open", "getattr", "apply", "file"}},
      {"subprocess", {"Popen", "call", "run", "check_output", "getoutput"}},
      {"commands", {"getoutput", "getstatusoutput"}},
      {"sys", {"exit", "modules", "setprofile"}},
      {"socket", {"socket", "create_connection"}},
      {"shutil", {"rmtree", "copyfile", "move"}},
      {"runpy", {"run_path", "_run_code", "run_module"}},
      {"importlib", {"import_module", "machinery.SourceFileLoader"}},
      {"imp", {"load_source"}},
      {"pickle", {"loads", "load"}},
      {"_pickle", {"loads"}},
      {"marshal", {"loads"}},
      {"ctypes", {"CDLL", "cast"}},
      {"code", {"interact", "InteractiveInterpreter.runcode"}},
      {"pty", {"spawn"}},
      {"pdb", {"run"}},
      {"bdb", {"Bdb.run"}},
      {"timeit", {"timeit", "main"}},
      {"trace", {"Trace.run"}},
      {"profile", {"Profile.runctx"}},
      {"cProfile", {"run"}},
      {"doctest", {"debug_script"}},
      {"operator", {"attrgetter", "itemgetter", "methodcaller"}},
      {"_operator", {"methodcaller"}},
      {"functools", {"partial", "reduce"}},
      {"types", {"CodeType", "FunctionType"}},
      {"webbrowser", {"open"}},
      {"urllib.request", {"urlopen", "urlretrieve"}},
      {"requests.api", {"get"}},
      {"httplib", {"HTTPSConnection"}},
      {"aiohttp.client", {"ClientSession"}},
      {"asyncio.unix_events", {"_UnixSubprocessTransport._start"}},
      {"multiprocessing.util", {"spawnv_passfds"}},
      {"distutils.file_util", {"write_file"}},
      {"logging.config", {"fileConfig"}},
      {"lib2to3.pgen2.pgen", {"ParserGenerator.make_label"}},
      {"idlelib.pyshell", {"ModifiedInterpreter.runcode"}},
      {"pip", {"main"}},
      {"pydoc", {"pipepager", "locate"}},
      {"venv", {"create"}},
      {"ensurepip", {"_run_pip"}},
      {"cloudpickle.cloudpickle", {"_make_function"}},
      {"dill", {"loads"}},
      {"joblib", {"load"}},
      {"numpy", {"load", "fromfile"}},
      {"numpy.f2py.crackfortran", {"getlincoef"}},
      {"numpy.testing._private.utils", {"runstring"}},
      {"torch", {"load", "storage._load_from_bytes", "hub.load"}},
      {"torch._dynamo.guards", {"GuardBuilder.get"}},
      {"torch.utils.collect_env", {"run"}},
      {"torch.jit.unsupported_tensor_ops", {"execWrapper"}},
      {"torch.distributed.rpc.internal", {"_run_function"}},
      {"torch.serialization", {"load"}},
      {"tensorflow", {"py_function", "io.read_file"}},
      {"__main__", {"Anything"}},
  };
  return all;
}

struct Name {
  std::string module;
  std::string name;
};

void put_short(PickleBuilder& pickle, const std::string& text) {
  pickle.op('\x8c').op(static_cast<char>(text.size())).raw(text);
}

// One tensor "w" of one float; parts of its declaration are the attack's.
struct Parts {
  std::function<void()> function = {};
  std::function<void()> storage_class = {};
  std::function<void()> key = {};
  std::function<void()> location = {};
  std::function<void()> hooks = {};
  std::function<void()> metadata = {};
};

void put_tensor_of(PickleBuilder& pickle, const Parts& parts) {
  const auto part = [](const std::function<void()>& other, const std::function<void()>& usual) {
    other ? other() : usual();
  };
  part(parts.function, [&] { pickle.global("torch._utils", "_rebuild_tensor_v2"); });
  pickle.mark().mark().string("storage");
  part(parts.storage_class, [&] { pickle.global("torch", "FloatStorage"); });
  part(parts.key, [&] { pickle.string("0"); });
  part(parts.location, [&] { pickle.string("cpu"); });
  pickle.integer(1).tuple().persistent_id().integer(0).integers({1}).integers({1}).boolean(false);
  part(parts.hooks, [&] { pickle.ordered_dict(); });
  if (parts.metadata) {
    parts.metadata();
  }
  pickle.tuple().reduce();
}

using Put = std::function<void(PickleBuilder&, const Name&, const std::string& argument)>;

void put_call(PickleBuilder& p, const Name& n, const std::string& argument) {
  p.global(n.module, n.name).mark().string(argument).tuple().reduce();
}

void put_in_dict(PickleBuilder& p, const std::function<void()>& value) {
  p.empty_dict().mark().string("w");
  put_tensor_of(p, {});
  p.string("e");
  value();
  p.set_items();
}

// The ways in which published bypasses of scanners wrote a call, and all places of a state dict
// where one may stand.
std::vector<std::pair<const char*, Put>> shapes() {
  const auto beside = [](const Put& put) {
    return [put](PickleBuilder& p, const Name& n, const std::string& a) {
      put_in_dict(p, [&] { put(p, n, a); });
    };
  };
  const auto within = [](const std::function<Parts(std::function<void()>)>& parts_of) {
    return [parts_of](PickleBuilder& p, const Name& n, const std::string& a) {
      p.empty_dict().mark().string("w");
      put_tensor_of(p, parts_of([&p, n, a] { put_call(p, n, a); }));
      p.set_items();
    };
  };
  return {
      {"GLOBAL", beside([](auto& p, auto& n, auto&) { p.global(n.module, n.name); })},
      {"REDUCE", beside(put_call)},
      {"STACK_GLOBAL", beside([](auto& p, auto& n, auto& a) {
         put_short(p, n.module);
         put_short(p, n.name);
         p.op('\x93').mark().string(a).tuple().reduce();
       })},
      {"STACK_GLOBAL by memo", beside([](auto& p, auto& n, auto& a) {
         put_short(p, n.module);
         p.op('\x94').op('0');
         put_short(p, n.name);
         p.put(700).op('0').string(n.module).get(700).op('\x93').string(a).op('\x85').reduce();
       })},
      {"INST", beside([](auto& p, auto& n, auto& a) {
         p.mark().string(a).op('i').raw(n.module + "\n" + n.name + "\n");
       })},
      {"OBJ", beside([](auto& p, auto& n, auto& a) {
         p.mark().global(n.module, n.name).string(a).op('o');
       })},
      {"NEWOBJ", beside([](auto& p, auto& n, auto& a) {
         p.global(n.module, n.name).string(a).op('\x85').new_object();
       })},
      {"NEWOBJ_EX", beside([](auto& p, auto& n, auto& a) {
         p.global(n.module, n.name).string(a).op('\x85').empty_dict().op('\x92');
       })},
      {"BUILD", beside([](auto& p, auto& n, auto& a) {
         put_call(p, n, a);
         p.empty_dict().string("__class__").global(n.module, n.name).op('s').build();
       })},
      {"SETITEM", beside([](auto& p, auto& n, auto& a) {
         put_call(p, n, a);
         p.string(a).none().op('s');
       })},
      {"APPEND", beside([](auto& p, auto& n, auto& a) {
         put_call(p, n, a);
         p.string(a).op('a');
       })},
      {"called twice", beside([](auto& p, auto& n, auto& a) {
         put_call(p, n, a);
         p.string(a).op('\x85').reduce();
       })},
      {"getattr of it", beside([](auto& p, auto& n, auto&) {
         p.global("builtins", "getattr").global(n.module, n.name).string("__call__");
         p.op('\x86').reduce().empty_tuple().reduce();
       })},
      {"in a list in a tuple", beside([](auto& p, auto& n, auto& a) {
         p.empty_list();
         put_call(p, n, a);
         p.op('a').op('\x85');
       })},
      {"as a key", beside([](auto& p, auto& n, auto& a) {
         p.empty_dict();
         put_call(p, n, a);
         p.none().op('s');
       })},
      {"called and popped",
       [](auto& p, auto& n, auto& a) {
         put_call(p, n, a);
         p.op('0');
         put_in_dict(p, [&] { p.none(); });
       }},
      {"popped with a mark",
       [](auto& p, auto& n, auto& a) {
         p.mark();
         put_call(p, n, a);
         p.op('1');
         put_in_dict(p, [&] { p.none(); });
       }},
      {"behind STOP",
       [](auto& p, auto& n, auto& a) {
         put_in_dict(p, [&] { p.none(); });
         p.stop();
         put_call(p, n, a);
       }},
      {"the root", [](auto& p, auto& n, auto& a) { put_call(p, n, a); }},
      {"a root with items",
       [](auto& p, auto& n, auto& a) {
         put_call(p, n, a);
         p.mark().string("w");
         put_tensor_of(p, {});
         p.set_items();
       }},
      {"the function of a tensor", within([](auto put) { return Parts{.function = put}; })},
      {"the class of a storage", within([](auto put) { return Parts{.storage_class = put}; })},
      {"the key of a storage", within([](auto put) { return Parts{.key = put}; })},
      {"the device of a storage", within([](auto put) { return Parts{.location = put}; })},
      {"the hooks of a tensor", within([](auto put) { return Parts{.hooks = put}; })},
      {"the metadata of a tensor", within([](auto put) { return Parts{.metadata = put}; })},
      {"a bare class of a storage",
       [](auto& p, auto& n, auto&) {
         p.empty_dict().mark().string("w");
         put_tensor_of(p, {.storage_class = [&] { p.global(n.module, n.name); }});
         p.set_items();
       }},
      {"a bare function of a tensor",
       [](auto& p, auto& n, auto&) {
         p.empty_dict().mark().string("w");
         put_tensor_of(p, {.function = [&] { p.global(n.module, n.name); }});
         p.set_items();
       }},
      {"a persistent id", beside([](auto& p, auto& n, auto& a) {
         put_call(p, n, a);
         p.persistent_id();
       })},
      {"in a parameter", beside([](auto& p, auto& n, auto& a) {
         p.global("torch._utils", "_rebuild_parameter").mark();
         put_call(p, n, a);
         p.boolean(true).ordered_dict().tuple().reduce();
       })},
      {"a state of a tensor", beside([](auto& p, auto& n, auto& a) {
         put_tensor_of(p, {});
         p.empty_dict().string("data");
         put_call(p, n, a);
         p.op('s').build();
       })},
      {"a type of torch.Tensor", beside([](auto& p, auto& n, auto&) {
         p.global("torch._tensor", "_rebuild_from_type_v2").mark();
         p.global(n.module, n.name).global(n.module, n.name).empty_tuple().empty_dict();
         p.tuple().reduce();
       })},
  };
}

TEST(PickleThreat, NamesInAPickleAreNeverImportedOrCalled) {
  const WatchedFolder victim;
  const std::string argument = "touch " + (victim.path() / "x").string();
  std::size_t cases = 0;
  for (const auto& [module, names] : dangerous()) {
    for (const std::string& name : names) {
      for (const auto& [label, put] : shapes()) {
        PickleBuilder pickle;
        put(pickle.proto(4), {module, name}, argument);
        const std::string file = zip_of(pickle.stop(), {f32({7})});
        for (const Selection selection : {Selection::kStateDict, Selection::kEverything}) {
          const auto checkpoint = open_in_memory(file, {.selection = selection});
          for (std::size_t i = 0; checkpoint && i < checkpoint->tensors().size(); ++i) {
            EXPECT_EQ(read_all(*checkpoint, i), f32({7})) << label << " " << module << "." << name;
          }
        }
        ++cases;
      }
    }
  }
  EXPECT_GE(cases, 3000U);
  EXPECT_FALSE(victim.was_touched());
}

// A name that looks like one of torch's is another's.
TEST(PickleThreat, NamesThatResembleTorchsMeanNothing) {
  const std::vector<Name> names{{"torch._utils ", "_rebuild_tensor_v2"},
                                {" torch._utils", "_rebuild_tensor_v2"},
                                {"torch", "_utils._rebuild_tensor_v2"},
                                {"torch._utils", "_rebuild_tensor_v2 "},
                                {"torch._utils\r", "_rebuild_tensor_v2"},
                                {"torch._utils.", "_rebuild_tensor_v2"},
                                {"TORCH._UTILS", "_rebuild_tensor_v2"},
                                {"torch._util\xc5\xa1", "_rebuild_tensor_v2"},
                                {"torch._utils", "_REBUILD_TENSOR_V2"},
                                {"", "torch._utils._rebuild_tensor_v2"},
                                {"torch._utils", ""},
                                {"torch._utils\0"s, "_rebuild_tensor_v2"}};
  for (const Name& name : names) {
    PickleBuilder pickle;
    pickle.proto().empty_dict().mark().string("w");
    put_tensor_of(pickle, {.function = [&] { pickle.global(name.module, name.name); }});
    pickle.set_items().stop();
    EXPECT_FALSE(open_in_memory(zip_of(pickle, {f32({7})})).has_value()) << name.module;
  }
}

TEST(PickleThreat, EveryOpcodeInEveryProtocolEndsInAValueOrAnError) {
  const std::string known =
      "(.01FINJKLMRSTUVXabcdeghijlopqrstu2GQC]})B\x80\x81\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e"
      "\x8f\x90\x91\x92\x93\x94\x95\x96";
  const std::vector<std::string> operands{"", std::string(16, '\0'), std::string(16, '\xff'),
                                          "1\n1\n1\n"};
  const std::vector<std::string> stacks{"", "N", "(NN", "}NN", "](N", "cos\nsystem\n)", "NQ}"};
  for (int op = 0; op < 256; ++op) {
    for (char protocol = 0; protocol < 6; ++protocol) {
      for (const std::string& stack : stacks) {
        for (const std::string& operand : operands) {
          const char opcode = static_cast<char>(op);
          const std::string bytes = "\x80"s + protocol + stack + opcode + operand + ".";
          reset_peak();
          const auto pickle = Pickle::parse(bytes);
          EXPECT_LT(peak_bytes(), kModestMemory) << op;
          if (known.find(opcode) == std::string::npos) {
            EXPECT_FALSE(pickle.has_value()) << op;
          }
        }
      }
    }
  }
}

TEST(PickleThreat, NoLengthTakesMoreThanItsBytes) {
  const std::vector<std::pair<std::string, int>> opcodes{
      {"X", 4},    {"\x8c", 1}, {"\x8d", 8}, {"U", 1},    {"T", 4},    {"C", 1},  {"B", 4},
      {"\x8e", 8}, {"\x96", 8}, {"\x8a", 1}, {"\x8b", 4}, {"\x95", 8}, {"Nr", 4}, {"Nq", 1}};
  for (const auto& [opcode, size] : opcodes) {
    const bool is_index = opcode[0] == 'N';
    for (const std::uint64_t value : boundary_values(3, 12)) {
      std::string bytes = opcode;
      put_le(bytes, value, size);
      bytes += "abc.";
      reset_peak();
      const auto pickle = Pickle::parse(is_index ? bytes.substr(0, bytes.size() - 4) + "." : bytes);
      EXPECT_LT(peak_bytes(), std::size_t{1} << 20) << opcode << " " << value;
      const std::uint64_t read = size == 8 ? value : value & ((std::uint64_t{1} << 8 * size) - 1);
      if (!is_index && read > 4) {
        EXPECT_FALSE(pickle.has_value()) << opcode << " " << value;
      }
    }
  }
}

// Runs `work` on a stack of `bytes`.
void on_small_stack(std::size_t bytes, const std::function<void()>& work) {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ASSERT_EQ(::pthread_attr_setstacksize(&attributes, bytes), 0);
  pthread_t thread{};
  const auto run = [](void* what) -> void* {
    (*static_cast<const std::function<void()>*>(what))();
    return nullptr;
  };
  ASSERT_EQ(::pthread_create(&thread, &attributes, run,
                             const_cast<void*>(static_cast<const void*>(&work))),
            0);
  ::pthread_join(thread, nullptr);
  ::pthread_attr_destroy(&attributes);
}

std::string repeated(const std::string& part, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) {
    all += part;
  }
  return all;
}

TEST(PickleThreat, DepthAndSharingTakeNoStackAndLittleMemory) {
  constexpr std::size_t kDeep = 40'000;
  constexpr std::size_t kStack = std::size_t{256} << 10;
  const std::vector<std::string> bombs{
      "N" + std::string(kDeep, '\x85') + ".",                                   // tuples
      std::string(kDeep, ']') + std::string(kDeep - 1, 'a') + ".",              // lists
      repeated("}N", kDeep) + "N" + std::string(kDeep, 's') + ".",              // dicts
      repeated("cos\nsystem\n", kDeep) + ")" + repeated("R\x85", kDeep) + ".",  // calls
      std::string(kDeep, '(') + std::string(kDeep, 't') + ".",
      "]" + repeated("2\x86", 40) + ".",                                // 2^40 paths
      "]q" + std::string(1, '\0') + "h" + std::string(1, '\0') + "a.",  // holds itself
      "}q" + std::string(1, '\0') + "Nh" + std::string(1, '\0') + "s.",
      "N" + std::string(kDeep, 'Q') + ".",  // persistent ids
  };
  on_small_stack(kStack, [&] {
    for (const std::string& bomb : bombs) {
      reset_peak();
      { EXPECT_THAT(Pickle::parse(bomb), IsOk()); }
      EXPECT_LT(peak_bytes(), 100 * bomb.size() + kModestMemory) << bomb.substr(0, 9);
      ZipBuilder zip;
      zip.add({.name = "a/data.pkl", .data = bomb});
      const std::string file = zip.finish();
      for (const Selection selection : {Selection::kStateDict, Selection::kEverything}) {
        (void)open_in_memory(file, {.selection = selection}).has_value();
      }
    }
  });
}

TEST(PickleThreat, OnlyContainersAndObjectsTakeParts) {
  const std::vector<std::pair<std::string, std::string>> kinds{
      {"None", "N"},
      {"bool", "\x88"},
      {"int", "K\x01"},
      {"long", "\x8a\x09" + std::string(9, '\x01')},
      {"float", "G" + std::string(8, '\0')},
      {"string", "U\x01x"},
      {"bytes", "C\x01x"},
      {"tuple", "N\x85"},
      {"list", "]"},
      {"dict", "}"},
      {"set", "\x8f"},
      {"global", "cos\nsystem\n"},
      {"object", "cos\nsystem\n)R"},
      {"storage", "NQ"}};
  const std::vector<std::pair<std::string, std::string>> ops{
      {"SETITEM", "NNs"}, {"SETITEMS", "(NNu"},   {"APPEND", "Na"},
      {"APPENDS", "(Ne"}, {"ADDITEMS", "(N\x90"}, {"BUILD", "}b"}};
  const std::set<std::string> allowed{"SETITEM dict",    "SETITEMS dict",  "SETITEM object",
                                      "SETITEMS object", "APPEND list",    "APPENDS list",
                                      "APPEND object",   "APPENDS object", "ADDITEMS set",
                                      "ADDITEMS object", "BUILD object"};
  for (const auto& [kind, value] : kinds) {
    for (const auto& [op, bytes] : ops) {
      const auto pickle = Pickle::parse(value + bytes + ".");
      EXPECT_EQ(pickle.has_value(), allowed.contains(op + " " + kind)) << op << " on " << kind;
    }
  }
}

}  // namespace
}  // namespace onnx_external
