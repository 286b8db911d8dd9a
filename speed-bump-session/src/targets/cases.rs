//! Single lines, and whether each selects a Python function: the cases of the reference (docs/targets.md),
//! and similar ones. We test all code that selects functions with these cases.

/// A line, and whether it selects a Python function.
pub(super) struct Case {
    pub(super) line: &'static str,
    pub(super) file: &'static str,
    pub(super) qualname: &'static str,
    pub(super) selects: bool,
}

const LLAMA: &str = "/x/site-packages/transformers/models/llama/modeling_llama.py";
const RUNNER: &str = "*/vllm/worker/model_runner.py:ModelRunner.execute_model";

pub(super) const CASES: [Case; 27] = [
    case("*:*", "/a/b.py", "f", true),
    case("native:*:*", "/a/b.py", "f", false),
    case("*/numpy/*:*", "/x/numpy/core/a.py", "g", true),
    case(RUNNER, "/s/vllm/worker/model_runner.py", "ModelRunner.execute_model", true),
    case("*:*attention*", "/a/b.py", "SelfAttention.forward", false),
    case("*:*<locals>*", "/a/b.py", "outer.<locals>.inner", true),
    case("*:*[!d]", "/a/b.py", "bad", false),
    case("*:a{b,c}", "/a/b.py", "ab", false),
    case("*:a{b,c}", "/a/b.py", "a{b,c}", true),
    case("*:f[", "/a/b.py", "f[", true),
    // We compare a module pattern without `/` with the dotted name.
    case("module : name", "/x/module.py", "name", true),
    case(
        "transformers.modeling_llama:LlamaAttention.*",
        "/s/transformers/modeling_llama.py",
        "LlamaAttention.forward",
        true,
    ),
    case("transformers.*:*", "/s/mytransformers/a.py", "f", false),
    case("transformers.*:*Attention*", LLAMA, "LlamaAttention.forward", true),
    case("json.decoder:*", "/usr/lib/python3.11/json/decoder.py", "JSONDecoder.decode", true),
    case("json:*", "/usr/lib/python3.11/json/__init__.py", "loads", true),
    case("json:*", "/usr/lib/python3.11/json/decoder.py", "JSONDecoder.decode", false),
    case("*json*:*", "/usr/lib/python3.11/json/decoder.py", "JSONDecoder.decode", true),
    case("decoder.py:*", "/usr/lib/python3.11/json/decoder.py", "JSONDecoder.decode", false),
    // In dotted names, a class also matches the `.` that stands for a `/`. In paths, a `/` remains a `/`.
    case("json[.]decoder:*", "/x/json/decoder.py", "loads", true),
    case("json[!.]decoder:*", "/x/json/decoder.py", "loads", false),
    case("jso[n]?[d]ecoder:*", "/x/json/decoder.py", "loads", true),
    case("*/json[!.]decoder.py:*", "/x/json/decoder.py", "loads", true),
    case("*/json[.]decoder.py:*", "/x/json/decoder.py", "loads", false),
    case("<string>:*", "<string>", "<module>", true),
    case("*:<lambda>", "/a.py", "<lambda>", true),
    case("native:*:*", "libc.so.6", "malloc", false),
];

const fn case(line: &'static str, file: &'static str, qualname: &'static str, selects: bool) -> Case {
    Case { line, file, qualname, selects }
}
