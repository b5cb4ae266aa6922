//! Kernels of two parameters, `input` and `output`, and their runs.
//!
//! A body finds `%rd0` to hold the input's address, `%rd10` the output's, and `%r0` its thread's
//! number in the launch.

use kvtide_simcuda::ptx::{Cause, Launch, LaunchError, Memory, Module};

/// Where the input lies.
pub(crate) const INPUT: u64 = 0x7000_0000_0000;

/// Where the output lies.
pub(crate) const OUTPUT: u64 = 0x7100_0000_0000;

const HEADER: &str = ".version 7.4\n.target sm_75\n.address_size 64\n";

const PROLOGUE: &str = "
    .reg .pred %p<10>;
    .reg .b16 %h<12>;
    .reg .b32 %r<24>;
    .reg .b64 %rd<24>;
    ld.param.u64 %rd0, [input];
    ld.param.u64 %rd10, [output];
    mov.u32 %r20, %ctaid.x;
    mov.u32 %r21, %ntid.x;
    mov.u32 %r22, %tid.x;
    mad.lo.u32 %r0, %r20, %r21, %r22;
";

/// Stores 32 bits of each thread: its result.
pub(crate) const STORE_R9: &str = "
    mul.wide.u32 %rd11, %r0, 4;
    add.u64 %rd11, %rd11, %rd10;
    st.global.u32 [%rd11], %r9;
";

/// Returns the text of a module whose kernel `test` has this body, behind these declarations.
pub(crate) fn module_text(declarations: &str, body: &str) -> String {
    format!(
        "{HEADER}{declarations}\n.visible .entry test(\n    .param .u64 .ptr .align 1 input,\n    \
         .param .u64 output\n)\n{{{PROLOGUE}{body}\n    ret;\n}}\n"
    )
}

/// A run of one kernel.
pub(crate) struct Run {
    pub(crate) text: String,
    pub(crate) grid: [u32; 3],
    pub(crate) thread_block: [u32; 3],
    pub(crate) input: Vec<u8>,
    /// Bytes of the output, which nobody has written.
    pub(crate) output_bytes: usize,
    pub(crate) order_seed: Option<u64>,
    pub(crate) step_limit: u64,
}

impl Run {
    /// A run of one thread with 64 bytes each of input, zeros, and output.
    pub(crate) fn new(body: &str) -> Self {
        Self::with(module_text("", body))
    }

    /// As [`Run::new`], of a whole text.
    pub(crate) fn with(text: String) -> Self {
        Self {
            text,
            grid: [1; 3],
            thread_block: [1; 3],
            input: vec![0; 64],
            output_bytes: 64,
            order_seed: None,
            step_limit: 100_000,
        }
    }

    /// Sets the launch, and four bytes of output for each thread.
    pub(crate) fn threads(mut self, thread_blocks: u32, threads: u32) -> Self {
        (self.grid[0], self.thread_block[0]) = (thread_blocks, threads);
        self.output_bytes = usize::try_from(thread_blocks * threads * 4).expect("small");
        self
    }

    pub(crate) fn input_u64s(mut self, values: &[u64]) -> Self {
        self.input = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self
    }

    /// Runs, and returns the output's bytes.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, LaunchError> {
        let module = Module::parse(&self.text).unwrap_or_else(|error| panic!("{error}"));
        let mut memory = Memory::new();
        memory.map(INPUT, &self.input).expect("nothing else is there");
        memory.map_uninitialised(OUTPUT, &vec![0xee; self.output_bytes]).expect("likewise");
        let arguments = [INPUT.to_le_bytes(), OUTPUT.to_le_bytes()].concat();
        let launch = Launch {
            grid: self.grid,
            thread_block: self.thread_block,
            arguments: &arguments,
            step_limit: self.step_limit,
            order_seed: self.order_seed,
        };
        module.kernel("test").expect("the text has it").launch(&launch, &mut memory)?;
        let output = memory.read(OUTPUT, self.output_bytes).expect("it is mapped");
        Ok(output.to_vec())
    }

    /// Runs, and returns the output as words.
    pub(crate) fn words(&self) -> Vec<u32> {
        let bytes = self.bytes().unwrap_or_else(|error| panic!("{error}\n{}", self.text));
        let word = |word: &[u8]| u32::from_le_bytes(word.try_into().expect("4 bytes"));
        bytes.chunks_exact(4).map(word).collect()
    }

    /// Runs what must fail at `instruction`, and returns the cause.
    pub(crate) fn cause_at(&self, instruction: &str) -> Cause {
        let error = self.bytes().expect_err("it must fail");
        let message = error.to_string();
        assert!(message.contains(&format!("`{instruction}`")), "{message}");
        let LaunchError::Thread { place, cause } = error else { panic!("{message}") };
        let line = self.text.lines().nth(place.line as usize - 1).unwrap_or("");
        assert!(line.contains(instruction), "line {} is `{line}`", place.line);
        assert!(message.contains(&cause.to_string()), "{message}");
        cause
    }
}
