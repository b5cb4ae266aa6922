//! NVIDIA's assembler and disassembler, as pip installs them, and what they say of a kernel.
//!
//! Neither needs a GPU. Both are NVIDIA's own under its licence, so they are installed below
//! `target` and never committed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to do when the tools are not there.
const REMEDY: &str = "install them with\n  \
    python3 -m venv target/assemblers\n  \
    target/assemblers/bin/pip install --no-deps nvidia-cuda-nvcc==13.5.37 \
    nvidia-cuda-nvdisasm==13.5.37\n\
    or name the folder of yours by KVTIDE_ASSEMBLERS";

/// The folder of `ptxas` and `nvdisasm`.
#[derive(Debug)]
pub(super) struct Assembler {
    folder: PathBuf,
}

/// What `ptxas -v` says of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Resources {
    pub(super) registers: u32,
    pub(super) stack_bytes: u32,
    pub(super) spill_bytes: u32,
}

/// The machine code of all kernels for one target.
#[derive(Debug)]
pub(super) struct Assembly {
    /// By kernel.
    pub(super) resources: BTreeMap<String, Resources>,
    /// As `nvdisasm -c` prints it.
    pub(super) listing: String,
}

impl Assembler {
    /// Finds the tools: in `KVTIDE_ASSEMBLERS`, or where `pip` puts them below `target/assemblers`.
    pub(super) fn find(root: &Path) -> Result<Self, String> {
        let installed = || {
            let python =
                std::fs::read_dir(root.join("target/assemblers/lib")).ok()?.next()?.ok()?;
            Some(python.path().join("site-packages/nvidia/cu13/bin"))
        };
        let folder = std::env::var_os("KVTIDE_ASSEMBLERS").map(PathBuf::from).or_else(installed);
        folder
            .filter(|folder| ["ptxas", "nvdisasm"].iter().all(|tool| folder.join(tool).is_file()))
            .map(|folder| Self { folder })
            .ok_or_else(|| format!("ptxas and nvdisasm are not there; {REMEDY}"))
    }

    /// Returns the version of ptxas, as `V13.5.37`.
    pub(super) fn version(&self) -> Result<String, String> {
        let (text, _) = self.run("ptxas", &["--version"])?;
        text.split_whitespace()
            .find(|word| word.starts_with('V'))
            .map(str::to_owned)
            .ok_or_else(|| format!("ptxas does not tell its version but: {text}"))
    }

    /// Assembles `ptx` for `target`; `work` is a folder for intermediate files.
    pub(super) fn assemble(
        &self,
        ptx: &str,
        target: &str,
        work: &Path,
    ) -> Result<Assembly, String> {
        let file = |extension: &str| work.join(format!("{target}.{extension}"));
        let (source, binary) = (file("ptx"), file("cubin"));
        std::fs::create_dir_all(work)
            .and_then(|()| std::fs::write(&source, ptx))
            .map_err(|error| format!("{}: {error}", source.display()))?;
        let (source, binary) = (source.display().to_string(), binary.display().to_string());
        let arch = format!("-arch={target}");
        let (_, report) = self.run("ptxas", &["-v", &arch, &source, "-o", &binary])?;
        let (listing, _) = self.run("nvdisasm", &["-c", &binary])?;
        Ok(Assembly { resources: parse_resources(&report), listing })
    }

    /// Runs one of the tools and returns its standard output and standard error.
    fn run(&self, tool: &str, arguments: &[&str]) -> Result<(String, String), String> {
        let program = self.folder.join(tool);
        let output = Command::new(&program)
            .args(arguments)
            .output()
            .map_err(|error| format!("{}: {error}; {REMEDY}", program.display()))?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            return Ok((String::from_utf8_lossy(&output.stdout).into_owned(), errors));
        }
        Err(format!("{tool} {} failed:\n{errors}", arguments.join(" ")))
    }
}

/// Reads the report of `ptxas -v`.
fn parse_resources(report: &str) -> BTreeMap<String, Resources> {
    let mut all = BTreeMap::new();
    let mut kernel = "";
    for line in report.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            kernel = rest.split('\'').next().unwrap_or("");
            all.insert(kernel.to_owned(), Resources::default());
        }
        let Some(resources) = all.get_mut(kernel) else { continue };
        resources.registers = resources.registers.max(number_before(line, " registers"));
        resources.stack_bytes =
            resources.stack_bytes.max(number_before(line, " bytes stack frame"));
        resources.spill_bytes = resources
            .spill_bytes
            .max(number_before(line, " bytes spill stores"))
            .max(number_before(line, " bytes spill loads"));
    }
    all
}

/// Returns the number that stands before `unit` in `line`; 0 if there is none.
fn number_before(line: &str, unit: &str) -> u32 {
    let before = line.split_once(unit).map_or("", |(before, _)| before);
    before.rsplit([' ', '\t']).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Resources, parse_resources};

    #[test]
    fn the_report_is_read_kernel_by_kernel() {
        let report = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'kvtide_fill' for 'sm_75'
ptxas info    : Function properties for kvtide_fill
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 19 registers, used 0 barriers, 408 bytes cmem[0]
ptxas info    : Compiling entry function 'kvtide_judge' for 'sm_75'
    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 64 registers, used 0 barriers
";
        let resources = parse_resources(report);
        let fill = Resources { registers: 19, stack_bytes: 0, spill_bytes: 0 };
        let judge = Resources { registers: 64, stack_bytes: 16, spill_bytes: 8 };
        assert_eq!(resources.len(), 2);
        assert_eq!(resources["kvtide_fill"], fill);
        assert_eq!(resources["kvtide_judge"], judge);
    }
}
