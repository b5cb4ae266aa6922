//! What texts the parser takes, and what it says of others.

use crate::harness::{Run, module_text};
use kvtide_simcuda::ptx::{Launch, Memory, Module, ParseError};
use proptest::prelude::*;

#[test]
fn debug_information_and_advice_are_no_instructions() {
    let body = "
        .loc 1 20 5
        mov.u32 %r1, 7; // a comment
        .loc 1 21 9, function_name $L__info_string0, inlined_at 1 20 5
        .loc 1 21 9, function_name $L__info_string0+4, inlined_at 1 20 5
        .pragma \"nounroll\";
        /* another
           comment */
        st.global.u32 [%rd10], %r1;";
    let mut text = module_text(".file 1 \"kernel.rs\"\n.file 2 \"other.rs\", 1, 2", body);
    text += "\n.section .debug_str\n{\n$L__info_string0:\n.b8 65, 0\n}\n";
    let mut run = Run::with(text);
    run.output_bytes = 4;
    assert_eq!(run.words(), [7]);
}

#[test]
fn lines_are_those_of_the_text() {
    let module = Module::parse(&module_text("", "\n\n    trap;")).expect("it is good PTX");
    let kernel = module.kernel("test").expect("the text has it");
    assert_eq!(kernel.name(), "test");
    assert_eq!(kernel.argument_bytes(), 16);
    let instructions: Vec<(u32, &str)> = kernel.instructions().collect();
    assert_eq!(instructions.len(), 6 + 2 + 1);
    assert_eq!(instructions[0], (14, "ld.param.u64 %rd0, [input];"));
    assert_eq!(instructions[6], (22, "trap;"));
    assert_eq!(module.kernels().count(), 1);
    assert!(module.kernel("other").is_none());
}

#[test]
fn texts_that_are_not_modules_are_refused_by_line() {
    let unexpected = |line, expected, found: &str| ParseError::Unexpected {
        line,
        expected,
        found: found.to_owned(),
    };
    let unknown = |line, directive: &str| ParseError::UnknownDirective {
        line,
        directive: directive.to_owned(),
    };
    let twice = |line, name: &str| ParseError::DeclaredTwice { line, name: name.to_owned() };
    let rows = [
        (".version 7.4\n.func f { ret; }", unknown(2, ".func")),
        (".extern .shared .b8 x[];", unknown(1, ".extern")),
        (".global .u32 x;", unknown(1, ".global")),
        (".address_size 32", unexpected(1, "64", "32")),
        ("bra x;", unexpected(1, "a directive", "bra")),
        (".entry k() .cluster 2 { ret; }", unknown(1, ".cluster")),
        (".entry k(.param .v4 x) { ret; }", unknown(1, ".v4")),
        (".entry k(.param x) { ret; }", unexpected(1, "a type", "x")),
        (".entry k() { ret }", unexpected(1, ";", "")),
        (".entry k() {\n ret;", unexpected(2, "a name", "")),
        (".entry k() { .reg .f8 %r1; }", unknown(1, ".f8")),
        (".entry k() { .reg .b32 %r<-1>; }", unexpected(1, "a count", "-")),
        (".entry k() { .reg .b32 %r1;\n .reg .b32 %r<2>; }", twice(2, "%r1")),
        (".entry k() { x:\n x: ret; }", twice(2, "x")),
        (".entry k() { ret; }\n.entry k() { ret; }", twice(2, "k")),
        (".shared .u32 x;\n.const .u32 x;", twice(2, "x")),
        (".shared .b8 x[4096][4097];", unexpected(1, "a variable of at most 16 MiB", ";")),
        (".file 1 name", unexpected(1, "a string", "name")),
        (".section .text { }", unexpected(1, "a section of debug information", ".text")),
        (".section .debug_x {", unexpected(1, "}", "")),
        (".entry k() { .sreg; }", unknown(1, ".sreg")),
    ];
    for (text, expected) in rows {
        let error = Module::parse(text).expect_err(text);
        assert_eq!(error, expected, "{text}");
        assert!(error.to_string().starts_with("line "), "{error}");
    }
}

/// Pieces of PTX that make sense together now and then.
const PIECES: [&str; 40] = [
    "add.u32",
    "ld.global.u32",
    "st.shared.v2.u64",
    "mov.b64",
    "shfl.sync.bfly.b32",
    "setp.lt.u32",
    "cvt.s64.s32",
    "bra",
    "brx.idx",
    "bar.sync",
    "atom.global.add.u32",
    "bfe.s32",
    "prmt.b32",
    "%r0",
    "%r1",
    "%rd0",
    "%rd10",
    "%p1",
    "%tid.x",
    "_",
    "label",
    "label:",
    "0",
    "-1",
    "0xffffffff",
    ",",
    ",",
    ",",
    ";",
    ";",
    ";",
    "{",
    "}",
    "[",
    "]",
    "@%p1",
    "!",
    "+4",
    "|",
    ".reg .b32 %r<2>;",
];

proptest! {
    #[test]
    fn no_text_makes_the_interpreter_panic(
        pieces in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..30),
        noise in ".{0,8}",
        at: prop::sample::Index,
    ) {
        let mut text = module_text("", &pieces.join(" "));
        let places: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
        text.insert_str(*at.get(&places), &noise);
        let Ok(module) = Module::parse(&text) else { return Ok(()) };
        for kernel in module.kernels() {
            let arguments = vec![0; kernel.argument_bytes()];
            let launch = Launch { step_limit: 1000, ..Launch::new(2, 40, &arguments) };
            // Whether it runs or faults is the text's affair.
            drop(kernel.launch(&launch, &mut Memory::new()));
        }
    }
}
